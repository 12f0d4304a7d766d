#!/bin/bash
# Compares pagepool's vhost_user: with DPDK's net_virtio_user, interleaved, over one back end. See README.md.
set -u -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
rounds=9 seconds=2 only='' chosen='' version='' pagepool='' ours='' cpus=0,1 slots=1024 log=''
programs='ours command testpmd'
scenarios='drop64 send64 echo64 forward64 drop1500 send1500 echo1500 forward1500'

usage() {
    cat <<END
usage: compare.sh [--rounds N] [--seconds S] [--only WORD,...] [--programs NAME,...] [--cpus A,B] [--ring N]
                  [--pagepool BIN] [--ours BIN] [--log FILE]

  --rounds    rounds over all programs; medians are over the rounds [9]
  --seconds   seconds measured per run, 1 to 10 [2]
  --only      scenarios that contain one of these words, from: $scenarios
  --programs  programs to run, from: $programs
  --cpus      CPUs of the back end and of the program [0,1]
  --ring      slots of each ring [1024]
  --pagepool  run also this pagepool binary (drop, echo, forward), as command
  --ours      run this instead of xsk-rates, with its words: BIN ours send vhost_user:PATH --size N --ring N
  --log       append the output line of each run to this file
END
}

while [ $# -gt 0 ]; do
    [ $# -gt 1 ] || { usage; [ "$1" = --help ]; exit; }
    case $1 in
    --rounds) rounds=$2 ;; --seconds) seconds=$2 ;; --only) only=$2 ;; --programs) chosen=$2 ;;
    --cpus) cpus=$2 ;; --ring) slots=$2 ;; --log) log=$2 ;;
    --pagepool) pagepool=$(realpath -e "$2") || exit 2 ;;
    --ours) ours=$(realpath -e "$2") || exit 2 ;;
    *) usage; [ "$1" = --help ]; exit ;;
    esac
    shift 2
done

die() { echo "$1" >&2; exit 2; }
case $seconds in [1-9] | 10) ;; *) die "--seconds is $seconds, but must be from 1 to 10" ;; esac
for word in ${only//,/ }; do
    case $scenarios in *$word*) ;; *) die "--only: no scenario contains $word; scenarios: $scenarios" ;; esac
done
for name in ${chosen//,/ }; do
    case " $programs " in
    *" $name "*) ;;
    *) die "--programs: unknown program $name; programs: $programs" ;;
    esac
    [ "$name" != command ] || [ -n "$pagepool" ] || die "--programs command requires --pagepool BIN"
done
skip() { echo "SKIP: $1"; exit 0; }
command -v dpdk-testpmd >/dev/null || skip 'no dpdk-testpmd: apt install dpdk-dev (Debian) or dpdk (Ubuntu)'
command -v taskset >/dev/null || skip 'no taskset: apt install util-linux'

work=$(mktemp -d)
back='' front=''
# Ends what still runs, by its process id.
end_all() {
    for child in $front $back; do kill -KILL "$child" 2>/dev/null; done
    rm -rf "$work"
}
trap end_all EXIT
trap 'exit 130' INT TERM
cc -O2 -shared -fPIC "$here/windows.c" -o "$work/windows.so" -ldl 2>"$work/cc" ||
    skip "windows.c does not compile: $(head -1 "$work/cc"): apt install gcc libc6-dev"
(cd "$root" && cargo build --quiet --profile dist -p pagepool-net --example xsk-rates) || exit 1
rates=${CARGO_TARGET_DIR:-$root/target}/dist/examples/xsk-rates
ours=${ours:-$rates}
back_cpu=${cpus%,*} own=${cpus#*,}
# DPDK puts its files here.
export RUNTIME_DIRECTORY=$work

# The first value of a key in a line of JSON.
value() { grep -o "\"$1\":-\\?[0-9.]*" | head -1 | cut -d: -f2; }

# Waits until a condition holds, for at most $1 seconds, while process $2 runs.
await() {
    local end=$((SECONDS + $1)) child=$2
    shift 2
    until "$@"; do
        [ $SECONDS -lt $end ] && kill -0 "$child" 2>/dev/null || return 1
        sleep 0.05
    done
}

# Testpmd with a worker on CPU $1 and its main thread on CPU $2, in forward mode $3, with packets of $4 bytes.
# The rest are its devices.
testpmd() {
    local worker=$1 main=$2 mode=$3 size=$4 vdevs='' vdev
    shift 4
    for vdev in "$@"; do vdevs="$vdevs --vdev $vdev"; done
    echo "dpdk-testpmd -v -l $worker,$main --main-lcore $main --no-huge -m 512 --no-pci --no-telemetry" \
        "--file-prefix compare$$-$worker $vdevs -- -i --forward-mode=$mode --total-num-mbufs=32768" \
        "--no-mlockall --txd=$slots --rxd=$slots --txpkts=$size --record-core-cycles"
}

# The command of program $1 for action $2, packets of $3 bytes, as many sockets as $4.
program() {
    local names='' vdevs='' mode socket
    for socket in $(seq 0 $(($4 - 1))); do
        names="$names vhost_user:$work/sock$socket"
        vdevs="$vdevs net_virtio_user$socket,path=$work/sock$socket,queues=1,queue_size=$slots"
    done
    case $1 in
    ours) echo "taskset -c $own $ours ours $2$names --size $3 --ring $slots" ;;
    command)
        [ -n "$pagepool" ] && [ "$2" != send ] &&
            echo "taskset -c $own $pagepool $2$names --yes --json --ring $slots" ;;
    testpmd)
        case $2 in drop) mode=rxonly ;; send) mode=txonly ;; echo) mode=macswap ;; forward) mode=io ;; esac
        # shellcheck disable=SC2086 # splits $vdevs
        testpmd "$own" "$back_cpu" $mode "$3" $vdevs ;;
    esac
}

have_sockets() {
    local socket
    for socket in $(seq 0 $(($1 - 1))); do [ -S "$work/sock$socket" ] || return 1; done
}
# Before the state of its link changes, a port of the back end drops what it sends.
are_connected() { [ "$(grep -c 'link state change event' "$work/back")" -ge "$1" ]; }
# Until it forwards, testpmd disables and enables its queues.
is_forwarding() { grep -q 'packet forwarding' "$work/front"; }

# Starts the back end: forward mode $1, packets of $2 bytes, $3 sockets.
start_back() {
    local vdevs='' socket sent=''
    for socket in $(seq 0 $(($3 - 1))); do
        vdevs="$vdevs net_vhost$socket,iface=$work/sock$socket,queues=1"
    done
    [ "$1" = txonly ] && sent=1
    # shellcheck disable=SC2046,SC2086 # splits commands
    env LD_PRELOAD="$work/windows.so" WINDOWS_FILE="$work/windows" WINDOWS_COUNT=$((seconds * 5000)) \
        ${sent:+WINDOWS_SENT=1} \
        $(testpmd "$back_cpu" "$own" "$1" "$2" $vdevs) --port-topology=loop \
        <"$work/to_back" >"$work/back" 2>&1 &
    back=$!
    exec {to_back}>"$work/to_back"
    await 60 $back have_sockets "$3" || { why="the back end: $(tail -1 "$work/back")"; return 1; }
}

# Starts a program, and waits for the figures of the back end. Its name is $1, the back end starts by $2,
# there are $3 sockets, and the rest is the command.
measure() {
    local name=$1 start=$2 sockets=$3
    shift 3
    "$@" <"$work/to_front" >"$work/front" 2>&1 &
    front=$!
    exec {to_front}>"$work/to_front"
    if [ "$name" = testpmd ]; then
        echo start >&"$to_front"
        await 60 $front is_forwarding
    fi
    await 60 $front are_connected "$sockets" || { why="no connection: $(tail -1 "$work/front")"; return 1; }
    echo "$start" >&"$to_back"
    await $((seconds * 20 + 40)) $front test -s "$work/windows" ||
        { why="too few packets: $(tail -1 "$work/front")"; return 1; }
}

# Ends process $1, which was told to: waits for $2 seconds, then interrupts it, then kills it.
end() {
    await "$2" "$1" false
    kill -INT "$1" 2>/dev/null && await 5 "$1" false
    kill -KILL "$1" 2>/dev/null
    wait "$1" 2>/dev/null
}

# Ends both sides. The program: $1.
end_both() {
    local patience=1
    if [ -n "$front" ]; then
        [ "$1" = testpmd ] && printf 'stop\nquit\n' >&"$to_front"
        exec {to_front}>&-
        [ "$1" = command ] || patience=10
        end "$front" $patience
    fi
    if [ -n "$back" ]; then
        printf 'stop\nquit\n' >&"$to_back"
        exec {to_back}>&-
        end "$back" 10
    fi
    front='' back=''
}

# near or far: whether a cache line takes less than 250 ns to the other CPU and back.
distance() {
    local ns
    ns=$("$rates" line "$back_cpu" "$own" | value line_ns)
    [ "${ns:-0}" -gt 0 ] || die "xsk-rates line $back_cpu $own failed"
    if [ "$ns" -lt 250 ]; then echo near; else echo far; fi
}

# The last line of JSON of the program, or testpmd's cycles.
said() {
    grep '^{.*}$' "$work/front" | tail -1 | grep . ||
        sed -n 's/.*CPU cycles\/packet=\([0-9.]*\).*/{"all":\1}/p' "$work/front" | head -1
}

# One run: scenario, program, action, packet size. Fails if the CPUs moved.
run() {
    local words sockets=1 mode=io before after why='' line figure part best half
    # The packets of echo and forward are sent once, and go round. They are fewer than the slots of a ring.
    local start="start tx_first $((slots / 128))"
    case $3 in drop) mode=txonly start=start ;; send) mode=rxonly start=start ;; forward) sockets=2 ;; esac
    words=$(program "$2" "$3" "$4" $sockets)
    [ -n "$words" ] || return 0
    rm -f "$work"/sock* "$work/windows"
    before=$(distance) || exit
    # shellcheck disable=SC2086 # splits $words
    start_back $mode "$4" $sockets && measure "$2" "$start" $sockets $words
    end_both "$2"
    after=$(distance) || exit
    version=$(grep -o 'DPDK [0-9.]*' "$work/back" | head -1)
    if [ -n "$why" ]; then printf '%-12s %-8s failed: %s\n' "$1" "$2" "$why"; return 0; fi
    [ "$before" = "$after" ] || { printf '%-12s %-8s left out: the CPUs moved\n' "$1" "$2"; return 1; }
    read -r best half _ <"$work/windows"
    line=$(said)
    [ -n "$log" ] && echo "$1 $2 $after {\"pps\":$best,\"half\":$half,\"said\":${line:-null}}" >>"$log"
    printf '%-12s %-8s %-4s %10s' "$1" "$2" "$after" "$best"
    echo "$1/$after $2 figure $best" >>"$work/runs"
    for part in all receive handler return transmit; do
        figure=$(echo "$line" | value $part)
        [ -n "$figure" ] || continue
        printf ' %s %s' $part "$figure"
        echo "$1/$after $2 $part $figure" >>"$work/runs"
    done
    echo
}

wanted() {
    local word
    [ -z "$only" ] && return 0
    for word in ${only//,/ }; do case $1 in *$word*) return 0 ;; esac; done
    return 1
}

mkfifo "$work/to_back" "$work/to_front"
for round in $(seq "$rounds"); do
    echo "round $round of $rounds"
    for scenario in $scenarios; do
        wanted "$scenario" || continue
        what=${scenario%%[0-9]*} number=${scenario#"${scenario%%[0-9]*}"}
        # Reverse the order every other round: the second program finds a warmer machine.
        order=$programs
        [ $((round % 2)) = 0 ] && order=$(echo "$programs" | tr ' ' '\n' | tac)
        for name in $order; do
            case ,${chosen:-$name}, in *,"$name",*) ;; *) continue ;; esac
            for _ in 1 2 3; do run "$scenario" "$name" "$what" "$number" && break; done
        done
    done
done

[ -s "$work/runs" ] || { echo "no program ran"; exit 1; }
echo
cpu=$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2)
echo "$(uname -r), $(nproc) CPUs,$cpu; $version"
echo "rings of $slots; medians of up to $rounds runs of $seconds s"
echo
sort -k1,1V -k2,3 -k4,4g "$work/runs" >"$work/sorted"
awk -f "$here/../medians.awk" -f "$here/table.awk" "$work/sorted"
