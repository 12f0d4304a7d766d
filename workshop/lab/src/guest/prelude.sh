# Functions of the cases. The cards eth0 and eth1 are on one wire; eth2 and eth3, if they exist, on another.
P=/root/pagepool
BENCH=/root/pagepool-bench
MODE=zerocopy
skip() { echo "SKIP: $*"; exit 77; }
fail() { echo "FAILED: $*"; exit 1; }
note() { echo "NOTE: $*"; } # the table shows it beside the result

# up INTERFACE...: sets them up, and waits for their links.
up() {
    for interface; do ip link set "$interface" up || exit 1; done
    for interface; do
        tries=0
        while [ "$(cat "/sys/class/net/$interface/carrier" 2>/dev/null)" != 1 ]; do
            [ $tries -lt 100 ] || fail "$interface does not come up"
            tries=$((tries + 1))
            sleep 0.1
        done
    done
}

# pair: makes a veth with the ends `near` and `far`, until the case ends.
pair() {
    ip link add near type veth && ip link set veth0 name far || fail 'no veth'
    trap 'ip link del near' EXIT
    up near far
}

# pings INTERFACE COUNT: pings COUNT multicast groups, which do not reply.
pings() {
    ip addr add 10.0.0.1/24 dev "$1" && ip route add 224.0.0.0/4 dev "$1" || fail 'no route'
    pings=
    for group in $(seq "$2"); do ping -c 1 -W 1 "224.0.1.$group" >/dev/null & pings="$pings $!"; done
    wait $pings
    ip addr flush dev "$1"
}

# promiscuous INTERFACE...: sets promiscuous mode, until the case ends.
promiscuous() {
    for interface; do ip link set "$interface" promisc on || exit 1; done
    trap "for interface in $*; do ip link set \$interface promisc off; done" EXIT
}

# start NAME COMMAND...: starts it in the background, and waits until it prints its sockets, which it does after notes
# and warnings. Its output is in /tmp/NAME.
start() {
    name=$1
    shift
    : >"/tmp/$name" # remove the output of an earlier one before the wait
    "$@" >"/tmp/$name" 2>&1 &
    echo $! >"/tmp/$name.pid"
    tries=0
    while ! grep -q ', rings of ' "/tmp/$name" && [ $tries -lt 300 ] && kill -0 "$(cat "/tmp/$name.pid")" 2>/dev/null; do
        tries=$((tries + 1))
        sleep 0.1
    done
    sleep 0.5
}

# stop NAME: ends a command with SIGTERM, shows its output, and expects status 0.
stop() {
    kill -TERM "$(cat "/tmp/$1.pid")" 2>/dev/null
    ended "$1"
}

# ended NAME: waits for a command that has its SIGTERM already (a second one would kill it), shows its output, and
# expects status 0.
ended() {
    wait "$(cat "/tmp/$1.pid")"
    status=$?
    echo "--- $1: status $status"
    cat "/tmp/$1"
    [ $status -eq 0 ] || fail "$1 ended with status $status"
}

# mode NAME INTERFACE: the mode of a command's XDP program, and whether its sockets copy.
mode() { sed -n "s/^$2: \(.*\), queue.*/\1/p" "/tmp/$1"; }

# figure NAME LABEL: a number of a command's last lines.
figure() { sed -n "s/^ *$2  *\([0-9,]*\).*/\1/p" "/tmp/$1" | head -1 | tr -d ,; }

# exactly NAME LABEL NUMBER, at_least NAME LABEL NUMBER
exactly() { [ "$(figure "$1" "$2")" -eq "$3" ] || fail "$1: $2: $(figure "$1" "$2"), not $3"; }
at_least() { [ "$(figure "$1" "$2")" -ge "$3" ] || fail "$1: $2: $(figure "$1" "$2"), not $3 or more"; }

# send INTERFACE COUNT [OPTION...]: sends numbered frames in copy mode, $RATE a second.
send() {
    interface=$1 count=$2
    shift 2
    $P gen "$interface" --mode copy --rate ${RATE:-2000} --count "$count" --stats-every 0 "$@" >/tmp/send 2>&1 || { cat /tmp/send; fail 'gen'; }
    exactly send 'packets sent' "$count"
    sleep 0.5
}

# arrive INTERFACE COUNT: waits for COUNT more packets.
arrive() {
    enough=$(($(received "$1") + $2)) tries=0
    while [ "$(received "$1")" -lt $enough ]; do
        [ $tries -lt 200 ] || fail "$1: not $2 packets in 20 s"
        tries=$((tries + 1))
        sleep 0.1
    done
}

received() { cat "/sys/class/net/$1/statistics/rx_packets"; }

# placed NAME CPU NODE: expects the thread of a command's queue only on that CPU, and all its memory on that node.
placed() {
    process=$(cat "/tmp/$1.pid")
    for task in /proc/$process/task/*; do
        [ "$(cat "$task/comm")" = queue0 ] && cpus=$(sed -n 's/^Cpus_allowed_list:.//p' "$task/status")
    done
    [ "$cpus" = "$2" ] || fail "the thread is on CPUs $cpus, not $2"
    grep '^[0-9a-f]* bind:' "/proc/$process/numa_maps" >/tmp/maps
    grep -q "^[0-9a-f]* bind:$3 .* N$3=" /tmp/maps || fail "no memory is on node $3: $(cat /tmp/maps)"
    grep -v "^[0-9a-f]* bind:$3 " /tmp/maps && fail "some memory is not bound to node $3"
    sed "s/ N$3=//" /tmp/maps | grep ' N[0-9]*=' && fail "some memory is on another node than $3"
    note "thread on CPU $2, memory on node $3"
}

# flood FROM TO OPTION...: the kernel's pktgen on the last CPU sends UDP packets to the card TO, until `flood_ends`.
# Options are pktgen's, NAME=VALUE.
flood() {
    from=$1 mac=$(cat "/sys/class/net/$2/address") thread=/proc/net/pktgen/kpktgend_$(($(nproc) - 1))
    shift 2
    echo rem_device_all >"$thread"
    echo "add_device $from" >"$thread" || fail 'no pktgen'
    for option in count=0 dst=10.0.0.1 src_min=10.0.0.2 "dst_mac=$mac" "$@"; do
        echo "${option%%=*} ${option#*=}" >"/proc/net/pktgen/$from" || fail "pktgen does not take $option"
    done
    echo start >/proc/net/pktgen/pgctrl &
    flooding=$!
}

flood_ends() {
    echo stop >/proc/net/pktgen/pgctrl
    wait $flooding
}

# counts: prints the time, the number of interrupts of receive queues, and the CPU ticks of thread queue0.
counts() {
    cut -d' ' -f1 /proc/uptime
    awk '/input|-rx-/ { n = 0; for (i = 2; $i ~ /^[0-9]+$/; i++) n += $i; print "irq", n }' /proc/interrupts
    for task in /proc/$(cat /tmp/drop.pid 2>/dev/null)/task/*; do
        [ "$(cat "$task/comm" 2>/dev/null)" != queue0 ] || awk '{ print "thread", $14 + $15 }' "$task/stat"
    done
}

# look [PROCESS]: runs the doctor, and shows its output.
look() {
    counts >/tmp/before
    $P doctor "$@" --seconds 2 >/tmp/said
    status=$?
    counts >/tmp/after
    cat /tmp/said
    [ $status -eq 0 ] || [ $status -eq 5 ] || fail "the doctor ended with $status"
}

# were PERCENT: whether 1,300 interrupts a second came during the last look, and queue0 got that much of a CPU.
were() {
    paste -d' ' /tmp/before /tmp/after | awk -v percent="$1" '
        NR == 1 { time = $2 - $1 }
        $1 == "irq" { irqs += $4 - $2 }
        $1 == "thread" { ticks += $4 - $2 }
        END { print irqs / time " interrupts a second, queue0 " ticks / time " %"
              exit !(irqs >= 1300 * time && ticks >= percent * time) }'
}

# finds RULE..., lacks RULE...: expects that the last look found, or did not find, each rule.
finds() { for rule; do grep -q ": $rule (" /tmp/said || fail "the doctor does not find $rule"; done; }
lacks() { for rule; do ! grep -q ": $rule (" /tmp/said || fail "the doctor finds $rule"; done; }

# doctor finds|lacks RULE...: runs the doctor on `drop` while 4,000 packets a second arrive at eth0.
doctor() {
    flood eth1 eth0 clone_skb=1000 burst=16 delay=4000000
    look drop
    flood_ends
    "$@"
}

# crowded RULE PERCENT COMMAND [OPTION...]: the doctor finds a rule about interrupts in the process of a command.
# QEMU manages few interrupts: tries several rates. If the doctor finds nothing, the case fails only if `were` holds.
crowded() {
    rule=$1 percent=$2 command=$3
    shift 3
    for delay in 700000 600000 550000 450000 700000 600000; do
        flood eth1 eth0 delay=$delay "$@"
        look "$command"
        flood_ends
        ! grep -q ": $rule (" /tmp/said || return 0
        ! were "$percent" || fail "the doctor does not find $rule"
    done
    skip 'too few interrupts came, or the thread had too little of its CPU: this machine is too slow'
}

# interrupts WORD CPU: sends the interrupts whose names contain WORD to one CPU.
interrupts() {
    for number in $(sed -n "s/^ *\\([0-9]*\\):.*$1.*/\\1/p" /proc/interrupts); do
        echo "$2" >"/proc/irq/$number/smp_affinity_list"
    done
}

# net_test FILE [TEST | --OPTION]...: runs the tests of one file of pagepool-net, or those whose names begin with TEST.
net_test() { tests_of pagepool-net "$@"; }

link_test() { tests_of pagepool-link "$@"; }

core_test() { tests_of pagepool "$@"; }

tests_of() {
    binary=/root/tests/$1 file=$2 words='' named=''
    shift 2
    [ -x "$binary" ] || skip "the test binary $binary was not built"
    for word in "$@"; do
        case $word in
        --skip | --exact) words="$words $word" ;;
        *) words="$words $file::$word" named=yes ;;
        esac
    done
    case " $words " in *' --skip '*) named='' ;; esac
    [ "$named" ] || words="$file::$words"
    # shellcheck disable=SC2086 # names of tests have no spaces
    "$binary" --test-threads=1 --show-output $words
}
