#!/bin/sh
# kubectl_complete-fabric WORD...   what kubectl asks to complete "kubectl fabric": install it under this name, without
# .sh, in PATH beside kubectl-fabric.
set -eu
exec kubectl-fabric __complete "$@"
