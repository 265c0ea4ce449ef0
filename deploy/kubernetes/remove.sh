#!/bin/sh
# Gives back what ibmon owns on every node, then deletes the deployment: remove.sh deploy/kubernetes/node-direct
# Deleting alone would leave the taints: a pod that ends gives nothing back, because it ends at every rollout too.
#
# Where a node cannot be given back nothing is deleted, and the node's pod is named: ask again, or take its taint away by
# hand (kubectl taint node NODE ibmon.dev/fabric-) and delete with kubectl delete -k.
set -u
KUBECTL=${KUBECTL:-kubectl}
NAMESPACE=${NAMESPACE:-ibmon}
[ $# = 1 ] || {
  echo "usage: remove.sh DIRECTORY   (the one that was given to kubectl apply -k)" >&2
  exit 2
}

pods=$("$KUBECTL" -n "$NAMESPACE" get pods -l app.kubernetes.io/name=ibmon -o name) || exit 1
left=0
for pod in $pods; do
  said=$("$KUBECTL" -n "$NAMESPACE" exec "$pod" -- ibmon check --gate < /dev/null)
  code=$?
  case "$code:$said" in
  # A drain that may still stand: it is in force, or on record below mode drain, or nobody knows.
  1:refuse:* | 0:*"; on record: "* | 0:*"; no word of a drain" | 0:)
    "$KUBECTL" -n "$NAMESPACE" exec "$pod" -- ibmon release --reason "ibmon is removed" < /dev/null && continue
    ;;
  0:*) continue ;; # nothing of ours stands there
  esac
  echo "remove.sh: $pod was not given back; nothing is deleted" >&2
  left=1
done
[ $left = 0 ] || exit 1
exec "$KUBECTL" delete -k "$1"
