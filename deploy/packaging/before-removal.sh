#!/bin/sh
# Before the package is removed for good: gives back what ibmon owns of this node, then stops the daemon.
# Debian: call it from prerm when $1 is "remove". RPM: from %preun when $1 is 0. Not at an upgrade: a drain outlives it.
#
# Never fails, so that it keeps no package from being removed; a node that could not be given back is named on stderr,
# and afterwards somebody must do it at the scheduler.
IBMON=/usr/bin/ibmon
SYSTEMCTL=/usr/bin/systemctl
LIMIT=100 # seconds; a release waits up to 90 s for the scheduler

said=$(timeout -k 1 5 "$IBMON" check --gate 2> /dev/null < /dev/null)
case "$?:$said" in
1:refuse:* | 0:*"; on record: "*) # in force, or on record below mode drain
  if ! timeout -k 1 "$LIMIT" "$IBMON" release --reason "ibmon is removed from this node" < /dev/null; then
    said=${said#refuse: }
    echo "ibmon: this node is still drained: ${said##*; on record: }; give it back at the scheduler" >&2
  fi
  ;;
esac
"$SYSTEMCTL" disable --now ibmon.service > /dev/null 2>&1 < /dev/null
exit 0
