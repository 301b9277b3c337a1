#!/usr/bin/env bash
# Verifies the models of this directory with spin (Debian packages spin and gcc): what must hold by a full search of all states,
# and each broken variant by the error that the search must find. Each model says what it stands for and what its variants are.
#
#   progress/models/check.sh           all; about a minute on an idle processor
#   progress/models/check.sh -full     with larger runs of what must hold; up to 3 GB, a few minutes
#   progress/models/check.sh -show phase.pml -DLOOSE -DFAULT_NO_PHASE    prints the run that leads to the error
set -euo pipefail
cd "$(dirname "$0")"
models=$PWD full= memory=2048 optimize=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() { printf 'check.sh: %s\n' "$1" >&2; exit 1; }

# build MODEL FLAGS: makes the verifier.
build() {
  local model=$1; shift
  flags=("$@")
  (cd "$work" && rm -f pan* model.pml* && cp "$models/$model" model.pml && spin -a "$@" model.pml >spin.log &&
    gcc -O"$optimize" -w "-D${property-SAFETY}" -DMEMLIM="$memory" -o pan pan.c) || { cat "$work/spin.log"; fail "$model $*: does not build"; }
}

# search ARGS: one run of the verifier; sets errors, states and seconds.
search() {
  local start=$EPOCHREALTIME
  (cd "$work" && ./pan -m100000 -w22 "$@" >pan.log 2>&1) || true
  seconds=$(awk -v a="$start" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.1f", b - a}')
  errors=$(sed -n 's/^State-vector.* errors: \([0-9]*\)$/\1/p' "$work/pan.log")
  states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' "$work/pan.log" | head -1)
  [ -n "$errors" ] || { cat "$work/pan.log"; fail "the verifier gave no result"; }
}

# show prints the run that leads to the error.
show() { (cd "$work" && spin -t -p -g "${flags[@]}" model.pml); }

report() { printf '%-6s %9s states %6ss  %s\n' "$1" "$states" "$seconds" "$2"; }

# holds MODEL FLAGS: no error in all states, and every statement is reached, but for the ends of endless processes. With partial set
# other statements may be unreached too.
holds() {
  optimize=2 build "$@"
  search
  [ "$errors" = 0 ] || { cat "$work/pan.log"; show | tail -60; fail "$*: must hold"; }
  if ! grep -q '^Full statespace search' "$work/pan.log" || grep -qiE 'not completed|depth too small|out of memory|memory bound' "$work/pan.log"; then
    cat "$work/pan.log"; fail "$*: not all states were searched"
  fi
  if [ -z "${partial-}" ] && grep -E '^[[:space:]]+model\.pml:[0-9]+, state' "$work/pan.log" | grep -vq '"-end-"'; then
    grep -A20 '^unreached' "$work/pan.log"; fail "$*: statements that are never reached"
  fi
  report holds "$*"
}

# ends MODEL FLAGS: no run is endless, so that what holds where nothing more can happen holds in the end.
ends() {
  optimize=1 property=NP build "$@"
  search -E -l
  [ "$errors" = 0 ] || { cat "$work/pan.log"; fail "$*: a run without an end"; }
  report ends "$*"
}

# breaks MODEL FLAGS: the search finds an assertion that does not hold.
breaks() {
  build "$@"
  search
  [ "$errors" != 0 ] || fail "$*: a broken variant that passes"
  grep -q '^pan:1: assertion violated' "$work/pan.log" || { cat "$work/pan.log"; fail "$*: it fails otherwise than by an assertion"; }
  report breaks "$*"
}

case ${1-} in
-show)
  shift
  [ -f "${1-}" ] || fail "-show: which model? There are $(echo *.pml)"
  build "$@"
  search
  [ "$errors" != 0 ] || fail "$*: there is no error"
  show
  exit
  ;;
-full) full=1 memory=3500 ;;
'') ;;
*) fail "$1: no such flag; there are -full and -show" ;;
esac

phase() {
  holds phase.pml
  holds phase.pml -DOLD_COUNT
  holds phase.pml -DLIVE_GO_DORMANT
  partial=1 holds phase.pml -DLOOSE -DFAULT_NO_SYNC # but for what takes a SYNC
  holds phase.pml -DCANCEL=1 -DMSGS=3 -DOPS=1
  holds phase.pml -DCANCEL=3 -DMSGS=2 -DOPS=1
  holds phase.pml -DCANCEL=2 -DRECVS=2
  if [ -n "$full" ]; then
    holds phase.pml -DCANCEL=3 -DMSGS=3 -DOPS=1
    holds phase.pml -DCANCEL=3 -DMSGS=3
    holds phase.pml -DCANCEL=3
    holds phase.pml -DMSGS=6
    holds phase.pml -DMSGS=5 -DOPS=4
  fi
  breaks phase.pml -DFAULT_NO_SYNC
  ends phase.pml -DMSGS=3
  local fault
  for fault in NO_PHASE EARLY_COUNT DOUBLE_COUNT ACTIVATE_FIRST NO_OVERLAP PROMOTE_ANY NO_SEARCH LATE_DROP LATER_COUNT OTHER_PATH; do
    breaks phase.pml -DLOOSE -DFAULT_$fault
  done
  breaks phase.pml -DLOOSE -DCANCEL=3 -DFAULT_CANCEL_UNSIGNALLED
  breaks phase.pml -DCANCEL=1 -DMSGS=2 -DRECVS=2 -DOPS=1 -DFAULT_UNTOLD
  breaks phase.pml -DLOOSE -DMOD=3
}

park() {
  holds park.pml -DTWICE
  partial=1 holds park.pml -DDEATH -DPACKETS=1 # there is one packet only
  if [ -n "$full" ]; then
    holds park.pml
    partial=1 holds park.pml -DDEATH -DPACKETS=1 -DTWICE
  fi
  ends park.pml -DPACKETS=1
  local fault
  for fault in PLAIN_PUBLISH PLAIN_COLD PLAIN_PARK STATE_FIRST PARKED_FIRST NO_LOOK LOOK_HOT LOOK_INBOX COLD_LATE DRAIN_LATE PARK_ONCE \
    SUMMARY_FIRST SUMMARY_LAST DEMOTE_BLIND PROMOTE_ARMED; do
    breaks park.pml -DFAULT_$fault
  done
  breaks park.pml -DDEATH -DPACKETS=1 -DFAULT_DEATH_UNSEEN
}

room() {
  holds room.pml
  holds room.pml -DLINES=12
  holds room.pml -DLINES=16 -DFIRST=4
  holds room.pml -DLINES=16 -DFIRST=8
  ends room.pml
  ends room.pml -DLINES=16 -DFIRST=4 -DPACKETS=5
  local fault
  for fault in PLAIN_WANT PLAIN_HEAD NO_LOOK WANT_FIRST CLEAR_LATE REPORT_LATE; do breaks room.pml -DFAULT_$fault; done
  for fault in BEGIN ROOM DEAF; do breaks room.pml -DLINES=16 -DFIRST=4 -DFAULT_GROW_$fault; done
}

notifier() {
  holds notifier.pml
  ends notifier.pml
  local fault
  for fault in FLAG_FIRST WAKE_FIRST LATE_RESET NO_TAKE_FLAG WRITE_FIRST; do breaks notifier.pml -DFAULT_$fault; done
}

role() {
  local partial=1 # what several places share is not all used in each
  holds role.pml
  holds role.pml -DMANUAL
  holds role.pml -DMANUAL -DWAITERS=3
  if [ -n "$full" ]; then
    holds role.pml -DWAITERS=3
    breaks role.pml -DWAITERS=3 -DFAULT_NO_PASS
  fi
  ends role.pml -DMANUAL
  local fault
  for fault in NO_KICK NO_WAKE KEEP_ROLE PUSH_LATE; do breaks role.pml -DFAULT_$fault; done
  for fault in NO_HANDOVER NO_LOOK SLEEPER_LATE NO_AFTERFUNC; do breaks role.pml -DMANUAL -DFAULT_$fault; done
  for fault in NO_PASS SUCCESSOR_STAYS; do breaks role.pml -DMANUAL -DWAITERS=3 -DFAULT_$fault; done
}

held() {
  local one='-DMSGS=3 -DRECVS=2 -DSLOTS=1' two='-DWINDOW=0 -DCANCELS=0'
  holds held.pml $one
  holds held.pml $one -DWINDOW=0
  holds held.pml $one -DCANCELS=0 -DCOSTS -DWINDOW=2 -DQUANTUM=2 -DGROWTH=1
  holds held.pml $two
  holds held.pml -DENDS=0
  if [ -n "$full" ]; then
    holds held.pml
    holds held.pml -DWINDOW=0
    holds held.pml -DMSGS=4 -DENDS=0
    holds held.pml -DMSGS=4 -DWINDOW=2 -DQUANTUM=2 -DCANCELS=0
    holds held.pml $one -DCANCELS=2 -DENDS=2 -DROOM=3
  fi
  ends held.pml -DMSGS=2 -DRECVS=2 -DSLOTS=1
  local fault
  for fault in LOST_HELD LOST_WANT NO_HELD NO_NAMES NO_POST IGNORED NO_ALL NO_KNOWN STORE OLD_WANT OLD_CREDIT REMEMBERED STEAL NO_REPLACE \
    ONE_WANT NOT_USED CREDIT_FREE OVERTAKE WITHIN_ENDS; do
    breaks held.pml $one -DFAULT_$fault
  done
  for fault in BOTH IN_PLACE LAST_FIRST LATE_FIRST CANCELLING; do breaks held.pml $two -DFAULT_$fault; done
  breaks held.pml -DMSGS=4 -DFAULT_WRAP
}

connect() {
  local again='-DRESTARTS=1 -DBREAKS=1 -DFAILS=0'
  holds connect.pml
  holds connect.pml -DSTOPS
  partial=1 holds connect.pml $again # nobody gives up
  if [ -n "$full" ]; then
    holds connect.pml -DBREAKS=3 -DFAILS=1
    holds connect.pml -DRESTARTS=1
  fi
  ends connect.pml
  ends connect.pml $again
  local fault
  for fault in READY_EARLY POST_EARLY READY_LOST NO_REFUSAL NO_END END_IGNORED LINE_IGNORED FORGIVES; do breaks connect.pml -DFAULT_$fault; done
  for fault in OLD_HELLO READY_BLIND; do breaks connect.pml $again -DFAULT_$fault; done
}

phase
park
room
notifier
role
held
connect
