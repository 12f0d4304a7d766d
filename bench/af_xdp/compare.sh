#!/bin/bash
# Compares pagepool with other AF_XDP programs on veth pairs, interleaved, with one sender. See README.md.
set -u -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
rounds=9 seconds=2 only='' chosen='' pagepool='' xdpsock='' cpus=0,1 log='' record=''

usage() {
    cat <<END
usage: compare.sh [--rounds N] [--seconds S] [--only WORD,...] [--programs NAME,...] [--cpus A,B] [--pagepool BIN]
                  [--xdpsock BIN] [--log FILE] [--record NAME]

  --rounds    rounds over all programs; medians are over the rounds [9]
  --seconds   seconds measured per run [2]
  --only      scenarios that contain one of these words, from: drop64 drop1500 echo64 echo1500 forward64 forward1500
              tcp1500 gather1500 tcp8000
  --programs  programs to run, from: ours equal command unseen ring plain testpmd xdpsock kernel
  --cpus      CPUs of the sender and of the program [0,1]
  --pagepool  run also this pagepool binary (drop, echo, forward), as command and as unseen
  --xdpsock   run this xdpsock, from bpf-examples, too: in drop and echo
  --log       append the output line of each run to this file
  --record    write medians in ns per packet to NAME.json (ours) and NAME-peers.csv, for pagepool-bench --plot
END
}

while [ $# -gt 0 ]; do
    case $1 in
    --rounds) rounds=$2 ;; --seconds) seconds=$2 ;; --only) only=$2 ;; --programs) chosen=$2 ;; --cpus) cpus=$2 ;;
    --pagepool) pagepool=$(realpath -e "$2") || exit 2 ;; --xdpsock) xdpsock=$(realpath -e "$2") || exit 2 ;; --log) log=$2 ;;
    --record) record=$2 ;;
    *) usage; [ "$1" = --help ]; exit ;;
    esac
    shift 2 2>/dev/null || { usage; exit 2; }
done

die() { echo "$1" >&2; exit 2; }
programs='ours equal command unseen ring plain testpmd xdpsock kernel'
scenarios='drop64 drop1500 echo64 echo1500 forward64 forward1500 tcp1500 gather1500 tcp8000'
for word in ${only//,/ }; do
    case $scenarios in *$word*) ;; *) die "--only: no scenario contains $word; scenarios: $scenarios" ;; esac
done
for name in ${chosen//,/ }; do
    case " $programs " in
    *" $name "*) ;;
    *) die "--programs: unknown program $name; programs: $programs" ;;
    esac
    case $name in command | unseen) [ -n "$pagepool" ] || die "--programs $name requires --pagepool BIN" ;; esac
    [ "$name" != xdpsock ] || [ -n "$xdpsock" ] || die "--programs xdpsock requires --xdpsock BIN"
done
[ "$(id -u)" = 0 ] || { echo "requires root, for network namespaces and XDP"; exit 1; }
for tool in ethtool taskset; do
    command -v $tool >/dev/null || { echo "requires $tool: apt install ethtool util-linux"; exit 1; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
(cd "$root" && cargo build --quiet --profile dist -p pagepool-net --example xsk-rates) || exit 1
rates=${CARGO_TARGET_DIR:-$root/target}/dist/examples/xsk-rates
plain='' testpmd=''
if cc -O3 -march=native "$here/plain.c" -o "$work/plain" -lxdp -lbpf 2>"$work/cc"; then
    plain=$work/plain
else
    echo "SKIP plain: $(head -1 "$work/cc"): apt install gcc libxdp-dev libbpf-dev"
fi
if command -v dpdk-testpmd >/dev/null; then testpmd=$(command -v dpdk-testpmd); else echo "SKIP testpmd: apt install dpdk-dev"; fi

sender=${cpus%,*} own=${cpus#*,}
# Ring slots of `equal`, of the command and of their peers.
slots=2048
# Prints the command of program $1 for action $2 (drop, echo, forward) at MTU $3, to run between the hosts.
program() {
    local links='near0' mode vdev poll=''
    [ "$2" = forward ] && links='near0 near1'
    # The peers never sleep. Without this, ours sleeps after each burst of drop, and the sender pays to wake it.
    [ "$2" = drop ] && poll='--patience 1024'
    case $1 in
    ours) echo "$rates ours $2 $links --mtu $3 $poll" ;;
    equal) echo "$rates ours $2 $links --mtu $3 --ring $slots $poll" ;;
    command) [ -n "$pagepool" ] && echo "$pagepool $2 $links --yes --json --ring $slots" ;;
    unseen) [ -n "$pagepool" ] && echo "$pagepool $2 $links --yes --json --ring $slots --publish none" ;;
    ring) [ "$2" != drop ] && echo "$rates ours $2 $links --mtu $3 --by-ring" ;;
    plain) [ -n "$plain" ] && [ "$3" -le 3000 ] && echo "$plain $2 $links" ;;
    kernel)
        case $2 in
        drop) echo "$rates kernel drop near0" ;;
        forward) echo "$rates kernel redirect near0 near1" ;;
        esac ;;
    xdpsock)
        [ -n "$xdpsock" ] || return
        case $2 in drop) mode=-r ;; echo) mode=-l ;; *) return ;; esac
        echo "$xdpsock -i near0 -q 0 $mode -c" ;;
    testpmd)
        [ -n "$testpmd" ] && [ "$3" -le 3000 ] || return
        case $2 in drop) mode=rxonly ;; echo) mode=macswap ;; forward) mode=io ;; esac
        vdev="--vdev net_af_xdp0,iface=near0,busy_budget=0"
        [ "$2" = forward ] && vdev="$vdev --vdev net_af_xdp1,iface=near1,busy_budget=0"
        echo "$testpmd -l $sender,$own --main-lcore $sender --no-huge -m 512 --no-pci --no-telemetry" \
            "--file-prefix compare$$ $vdev -- --forward-mode=$mode --auto-start --record-core-cycles" \
            "--total-num-mbufs=32768 --rxd=$slots --txd=$slots --no-mlockall" ;;
    esac
}

# The first value of a key in a line of JSON.
value() { grep -o "\"$1\":-\\?[0-9.]*" | head -1 | cut -d: -f2; }

# One run: scenario, program, action, number (frame size or MTU).
run() {
    local mtu=1500 words line figure part on=$own what=$3 does=$3 unit=pps
    case $what in tcp | gather) mtu=$4 does=forward unit=gbit_s ;; esac
    words=$(program "$2" "$does" "$mtu")
    [ -n "$words" ] || return
    [ "$2" = testpmd ] && on=$sender,$own # testpmd pins its worker to the second CPU
    local bed=("$rates" bed "${what/gather/tcp}" --size "$4" --mtu "$mtu" --seconds "$seconds")
    case $what in
    # The kernel places the threads and the stacks of the hosts.
    tcp) bed+=(--gather 0) ;;
    # The sender's stack runs on the sender's CPU, as on another machine. Both hosts gather packets, as NICs do.
    gather) bed+=(--host-cpu "$sender") ;;
    *) bed=(taskset -c "$sender" "${bed[@]}") ;;
    esac
    bed+=(-- taskset -c "$on")
    # shellcheck disable=SC2086 # splits $words
    line=$("${bed[@]}" $words 2>"$work/err" | tail -1)
    figure=$(echo "$line" | value "$unit")
    if [ -z "$figure" ]; then
        printf '%-12s %-8s failed: %s\n' "$1" "$2" "$(grep xsk-rates "$work/err" | tail -1)"
        return
    fi
    [ -n "$log" ] && echo "$1 $2 $line" >>"$log"
    printf '%-12s %-8s %10s' "$1" "$2" "$figure"
    echo "$1 $2 figure $figure" >>"$work/runs"
    for part in all receive handler return transmit call calls; do
        figure=$(echo "$line" | value $part)
        [ -n "$figure" ] && printf ' %s %s' $part "$figure" && echo "$1 $2 $part $figure" >>"$work/runs"
    done
    echo
}

wanted() {
    local word
    [ -z "$only" ] && return 0
    for word in ${only//,/ }; do case $1 in *$word*) return 0 ;; esac; done
    return 1
}

for round in $(seq "$rounds"); do
    echo "round $round of $rounds"
    for scenario in $scenarios; do
        wanted $scenario || continue
        what=${scenario%%[0-9]*} number=${scenario#"${scenario%%[0-9]*}"}
        # Reverse the order every other round: the second program finds a warmer machine.
        order=$programs
        [ $((round % 2)) = 0 ] && order=$(echo "$programs" | tr ' ' '\n' | tac)
        for name in $order; do
            case ,${chosen:-$name}, in *,"$name",*) ;; *) continue ;; esac
            run $scenario "$name" "$what" "$number"
        done
    done
done

[ -s "$work/runs" ] || { echo "no program ran"; exit 1; }
echo
cpu=$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2)
echo "$(uname -r), $(nproc) CPUs,$cpu; medians of $rounds runs of $seconds s (lowest to highest)"
echo "packets/s, or Gbit/s in tcp and gather; TSC cycles per packet: all (as testpmd reports), or by part"
echo
sort -k1,1V -k2,3 -k4,4g "$work/runs" >"$work/sorted"
awk -f "$here/../medians.awk" -f "$here/table.awk" "$work/sorted"

[ -n "$record" ] || exit 0
# Converts packets/s to ns per packet. TCP transfers have no packets/s.
awk -v record="$record" -v cpu="${cpu# }, $(nproc) CPUs" -v kernel="Linux $(uname -r)" -v date="$(date -u +%F)" '
    BEGIN {
        label["plain"] = "plain libxdp"; label["testpmd"] = "dpdk-testpmd"; label["kernel"] = "in-kernel XDP"
        label["ring"] = "pagepool (transmit ring)"; label["equal"] = "pagepool (2048 slots)"; label["xdpsock"] = "xdpsock"
        label["command"] = "pagepool command"; label["unseen"] = "pagepool --publish none"
    }
    $3 == "figure" && $1 !~ /^(tcp|gather)/ {
        key = $1 " " $2
        if (!(key in n)) order[++keys] = key
        v[key, ++n[key]] = $4
    }
    function ns(key,  m) { m = n[key]; return 2e9 / (v[key, int((m + 1) / 2)] + v[key, int(m / 2) + 1]) }
    END {
        print "peer,workload,ns_med" >(record "-peers.csv")
        for (i = 1; i <= keys; i++) {
            split(order[i], w, " ")
            if (w[2] != "ours") { printf "%s,%s,%.1f\n", label[w[2]], w[1], ns(order[i]) >(record "-peers.csv"); continue }
            rows = rows sprintf("%s\n    {\"name\": \"%s\", \"ns_med\": %.1f}", rows == "" ? "" : ",", w[1], ns(order[i]))
        }
        printf "{\n  \"machine\": {\"cpu\": \"%s\", \"kernel\": \"%s\", \"date\": \"%s\"},\n", cpu, kernel, date >(record ".json")
        printf "  \"per\": \"packet\",\n  \"results\": [%s\n  ]\n}\n", rows >(record ".json")
    }' "$work/sorted"
