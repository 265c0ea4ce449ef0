#!/bin/sh
# HealthCheckProgram of slurmd: puts ibmon's drain of this node, while it is in force, into slurmd's log.
# In slurm.conf: HealthCheckProgram=/etc/slurm/ibmon/healthcheck.sh   HealthCheckInterval=300
#
# Slurm does nothing with the exit code but to log it with the output. This script never calls scontrol: draining is the
# daemon's, under its limits. For NHC, this line instead:   * || check_cmd_status -t 5 -r 0 /usr/bin/ibmon check --gate
# (NHC then drains a node that ibmon has drained already, and does not touch a drain that is not its own.)
# The environment has PWD and SLURMD_NODENAME, nothing else: every path is absolute.
IBMON=/usr/bin/ibmon
LIMIT=5 # seconds; Slurm kills a health check after 60

said=$(/usr/bin/timeout -k 1 "$LIMIT" "$IBMON" check --gate 2> /dev/null < /dev/null)
case "$?:$said" in
1:refuse:*)
  echo "ibmon: $said"
  exit 1
  ;;
esac
exit 0
