#!/bin/bash
# Two Soft-RoCE devices whose packets really cross a veth pair: rxe0 on va (192.0.2.1), rxe1 on vb (192.0.2.2).
#
#   rxe-pair.sh up | down | fix | loss PERCENT | noloss
#
# fix sets routes and neighbours again: needed for traffic after a link was down and up.
# Both ends are in one name space, because rxe in Linux 6.1 opens its socket in the first one only. So the table
# 'local' is moved behind two explicit routes: else Linux takes the short way over lo, and netem sees nothing.
# Connections through the RDMA connection manager are refused under this routing; plain verbs tools work:
#   ibv_rc_pingpong -d rxe1 -g 1 &  ibv_rc_pingpong -d rxe0 -g 1 192.0.2.2
set -e

neighbours_and_routes() {
  ip neigh replace 192.0.2.2 lladdr "$(< /sys/class/net/vb/address)" dev va nud permanent
  ip neigh replace 192.0.2.1 lladdr "$(< /sys/class/net/va/address)" dev vb nud permanent
  ip route replace 192.0.2.2/32 dev va src 192.0.2.1 table 77
  ip route replace 192.0.2.1/32 dev vb src 192.0.2.2 table 77
}

up() {
  modprobe -a rdma_rxe rdma_ucm ib_umad
  ip link add va type veth peer name vb
  for dev in va vb all; do
    sysctl -qw "net.ipv4.conf.$dev.accept_local=1" "net.ipv4.conf.$dev.rp_filter=0"
  done
  ip addr add 192.0.2.1/32 dev va
  ip addr add 192.0.2.2/32 dev vb
  ip link set va up
  ip link set vb up
  ip rule add pref 1 iif va lookup local
  ip rule add pref 2 iif vb lookup local
  neighbours_and_routes
  ip rule add pref 10 iif lo lookup 77
  ip rule add pref 100 lookup local
  ip rule del pref 0
  rdma link add rxe0 type rxe netdev va
  rdma link add rxe1 type rxe netdev vb
}

down() {
  ip link del va # takes vb and both RDMA devices with it
  for pref in 1 2 10 100; do ip rule del pref $pref; done
  ip rule add pref 0 lookup local
}

case $1 in
  up) up ;;
  down) down ;;
  fix) neighbours_and_routes ;;
  loss) for dev in va vb; do tc qdisc replace dev $dev root netem limit 10000 loss "$2%"; done ;;
  noloss) for dev in va vb; do tc qdisc del dev $dev root; done ;;
  *)
    echo "usage: rxe-pair.sh up | down | fix | loss PERCENT | noloss" >&2
    exit 2
    ;;
esac
