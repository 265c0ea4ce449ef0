#!/bin/sh
# Before slurmd starts after a boot: waits until ibmon calls the node fit, or the time is up. Then slurmd starts, in any
# case: a node that stays bad is for the drain to keep away from jobs. Called by slurmd.service.d/ibmon-wait.conf.
#
# Only in the first minutes of a boot. A slurmd that is restarted beside running jobs must be back within SlurmdTimeout
# (five minutes by default), or slurmctld calls the node down and takes its jobs.
IBMON=/usr/bin/ibmon
WAIT=600   # seconds
YOUNG=900  # seconds of uptime
UPTIME=/proc/uptime

read -r up _ < "$UPTIME" || exit 0
case "${up%%.*}" in
'' | *[!0-9]*) exit 0 ;;
esac
[ "${up%%.*}" -lt "$YOUNG" ] || exit 0
/usr/bin/timeout -k 5 "$((WAIT + 10))" "$IBMON" wait --for "${WAIT}s" < /dev/null
exit 0
