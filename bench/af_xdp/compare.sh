#!/bin/bash
# Ours beside other AF_XDP programs on veth pairs of this machine, interleaved, under one sender. See README.md.
set -u -o pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
rounds=9 seconds=2 only='' chosen='' pagepool='' xdpsock='' cpus=0,1 log='' record=''

usage() {
    cat <<END
usage: compare.sh [--rounds N] [--seconds S] [--only WORD,...] [--programs NAME,...] [--cpus A,B] [--pagepool BIN]
                  [--xdpsock BIN] [--log FILE] [--record NAME]

  --rounds    how often everything runs, alternately; medians are of these [9]
  --seconds   how long each run is measured [2]
  --only      of drop64 drop1500 echo64 echo1500 forward64 forward1500 tcp1500 gather1500 tcp8000: those that contain a word
  --programs  of ours unseen equal ring plain testpmd xdpsock kernel: these
  --cpus      the sender's CPU, and the program's [0,1]
  --pagepool  use the command as `ours` (pagepool drop, echo, forward) instead of the example of the library
  --xdpsock   this xdpsock, of bpf-examples, takes part in drop and echo
  --log       every run's line goes there
  --record    medians in ns per packet to NAME.json (ours) and NAME-peers.csv, which pagepool-bench --plot draws
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

refuse() { echo "$1" >&2; exit 2; }
programs='ours unseen equal ring plain testpmd xdpsock kernel'
scenarios='drop64 drop1500 echo64 echo1500 forward64 forward1500 tcp1500 gather1500 tcp8000'
for word in ${only//,/ }; do
    case $scenarios in *$word*) ;; *) refuse "--only: none of these contains $word: $scenarios" ;; esac
done
for name in ${chosen//,/ }; do
    case " $programs " in
    *" $name "*) ;;
    *) refuse "--programs: $name is none of: $programs" ;;
    esac
    [ "$name" != unseen ] || [ -n "$pagepool" ] || refuse "--programs unseen runs the command: add --pagepool BIN"
    [ "$name" != xdpsock ] || [ -n "$xdpsock" ] || refuse "--programs xdpsock: add --xdpsock BIN"
done
[ "$(id -u)" = 0 ] || { echo "must run as root, for network namespaces and XDP"; exit 1; }
for tool in ethtool taskset; do
    command -v $tool >/dev/null || { echo "it needs $tool: apt install ethtool util-linux"; exit 1; }
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
if command -v dpdk-testpmd >/dev/null; then testpmd=$(command -v dpdk-testpmd); else echo "SKIP testpmd: apt install dpdk"; fi

sender=${cpus%,*} own=${cpus#*,}
# Slots of the rings of the peers, which `equal` has, too.
slots=2048
# The command of a program ($1) that does something ($2: drop, echo, forward), in namespace between; $3 is the MTU.
program() {
    local links='near0' mode vdev
    [ "$2" = forward ] && links='near0 near1'
    case $1 in
    ours)
        if [ -n "$pagepool" ]; then echo "$pagepool $2 $links --yes --json"
        else echo "$rates ours $2 $links --mtu $3"; fi ;;
    equal)
        if [ -n "$pagepool" ]; then echo "$pagepool $2 $links --yes --json --ring $slots"
        else echo "$rates ours $2 $links --mtu $3 --ring $slots"; fi ;;
    unseen) [ -n "$pagepool" ] && echo "$pagepool $2 $links --yes --json --publish none" ;;
    ring)
        [ "$2" = drop ] && return
        if [ -n "$pagepool" ]; then echo "$pagepool $2 $links --yes --json --tx-mode ring"
        else echo "$rates ours $2 $links --mtu $3 --by-ring"; fi ;;
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

# The value of a key in a line of JSON, the first one.
value() { grep -o "\"$1\":-\\?[0-9.]*" | head -1 | cut -d: -f2; }

# One run: scenario, program, what, number (bytes of a frame, or the MTU).
run() {
    local mtu=1500 words line figure part on=$own what=$3 does=$3 unit=pps
    case $what in tcp | gather) mtu=$4 does=forward unit=gbit_s ;; esac
    words=$(program "$2" "$does" "$mtu")
    [ -n "$words" ] || return
    [ "$2" = testpmd ] && on=$sender,$own # it pins its worker to the second itself
    local bed=("$rates" bed "${what/gather/tcp}" --size "$4" --mtu "$mtu" --seconds "$seconds")
    case $what in
    # Hosts as they come: their ends and their stacks go where the kernel puts them.
    tcp) bed+=(--gather 0) ;;
    # The sender's stack does its work on its own CPU, as that of another machine would, and both gather packets, as NICs do.
    gather) bed+=(--host-cpu "$sender") ;;
    *) bed=(taskset -c "$sender" "${bed[@]}") ;;
    esac
    bed+=(-- taskset -c "$on")
    # shellcheck disable=SC2086 # words are words
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
        # In another order every other round: whoever comes second finds a warmer machine.
        in_turn=$programs
        [ $((round % 2)) = 0 ] && in_turn=$(echo "$programs" | tr ' ' '\n' | tac)
        for name in $in_turn; do
            case ,${chosen:-$name}, in *,"$name",*) ;; *) continue ;; esac
            run $scenario "$name" "$what" "$number"
        done
    done
done

[ -s "$work/runs" ] || { echo "nothing ran"; exit 1; }
echo
cpu=$(grep -m1 'model name' /proc/cpuinfo | cut -d: -f2)
echo "$(uname -r), $(nproc) CPUs,$cpu; medians of $rounds runs of $seconds s (lowest to highest)"
echo "packets/s, tcp and gather: Gbit/s; TSC cycles per packet: all (as testpmd reports), or by part"
echo
sort -k1,1V -k2,3 -k4,4g "$work/runs" >"$work/sorted"
awk '
    { key = $1 " " $2 " " $3; if (!(key in n)) { n[key] = 0; order[++keys] = key } v[key, ++n[key]] = $4 }
    function median(key,  m) { m = n[key]; return m % 2 ? v[key, (m + 1) / 2] : (v[key, m / 2] + v[key, m / 2 + 1]) / 2 }
    END {
        print "| what | program | median | lowest to highest | ours is | equal is | cycles per packet |"
        print "|---|---|---|---|---|---|---|"
        for (i = 1; i <= keys; i++) {
            split(order[i], w, " ")
            if (w[3] != "figure") continue
            key = order[i]; form = w[1] ~ /^(tcp|gather)/ ? "%.2f" : "%.0f"
            ours = w[1] " ours figure"; equal = w[1] " equal figure"
            line = "| " w[1] " | " w[2] " | " sprintf(form, median(key)) " | " sprintf(form " to " form, v[key, 1], v[key, n[key]]) " | "
            line = line (w[2] == "ours" || !(ours in n) ? "" : sprintf("%.2f times", median(ours) / median(key))) " | "
            line = line (w[2] == "equal" || !(equal in n) ? "" : sprintf("%.2f times", median(equal) / median(key))) " | "
            for (p = split("all receive handler return transmit call calls", parts, " "); p >= 1; p--) {
                of = w[1] " " w[2] " " parts[p]
                if (of in n) said = parts[p] sprintf(" %.1f", median(of)) (said == "" ? "" : ", " said)
            }
            three = w[1] " " w[2] " "
            if (w[2] ~ /^(ours|equal)$/ && (three "receive") in n)
                said = said sprintf("; receive + handler + return %.1f", median(three "receive") + median(three "handler") + median(three "return"))
            print line said " |"; said = ""
        }
    }' "$work/sorted"

[ -n "$record" ] || exit 0
# Packets/s as ns per packet. A TCP transfer has no such figure.
awk -v record="$record" -v cpu="${cpu# }, $(nproc) CPUs" -v kernel="Linux $(uname -r)" -v date="$(date -u +%F)" '
    BEGIN {
        label["plain"] = "plain libxdp"; label["testpmd"] = "dpdk-testpmd"; label["kernel"] = "in-kernel XDP"
        label["ring"] = "pagepool by the ring"; label["equal"] = "pagepool with rings of 2048"; label["xdpsock"] = "xdpsock"
        label["unseen"] = "pagepool --publish none"
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
