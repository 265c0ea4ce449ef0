#!/bin/sh
# Prolog of slurmd: refuses a job only while ibmon's own drain of this node is in force and was read back.
# In slurm.conf: Prolog=/etc/slurm/ibmon/prolog.sh   (docs/slurm.md tells what a refusal does to the job)
#
# Everything else lets the job pass: a node that is unfit and not drained, ibmon away, hanging, broken or too old, a
# verdict that is old or cannot be read. So nothing here can drain a node that ibmon's limits would have spared.
# Slurm hands over no PATH worth having: every path is absolute.
IBMON=/usr/bin/ibmon
LIMIT=5 # seconds; the answer takes a tenth of one

said=$(/usr/bin/timeout -k 1 "$LIMIT" "$IBMON" check --gate 2> /dev/null < /dev/null)
# The code alone is not enough: an interpreter that breaks down exits with 1 as well, and says no "refuse".
case "$?:$said" in
1:refuse:*)
  echo "ibmon: $said" >&2
  exit 1
  ;;
esac
exit 0
