#!/bin/sh
# Epilog of slurmd: says into the journal that the job ended on a node which ibmon has drained, for who looks into it.
# In slurm.conf: Epilog=/etc/slurm/ibmon/epilog.sh
#
# Always exits with 0: Slurm drains a node whose epilog fails, and that is for ibmon to decide, under its limits.
IBMON=/usr/bin/ibmon
LIMIT=5 # seconds; the node serves no other job meanwhile

said=$(/usr/bin/timeout -k 1 "$LIMIT" "$IBMON" check --gate 2> /dev/null < /dev/null)
case "$?:$said" in
1:refuse:*)
  /usr/bin/timeout -k 1 2 /usr/bin/logger -t ibmon-epilog -- "job ${SLURM_JOB_ID:-?} ended on a drained node: $said" \
    2> /dev/null < /dev/null
  ;;
esac
exit 0
