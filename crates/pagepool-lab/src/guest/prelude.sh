# Functions of the cases. Cards: eth0 and eth1 are on one wire; eth2 and eth3, if there are, on another.
P=/root/pagepool
MODE=zerocopy
skip() { echo "SKIP: $*"; exit 77; }
fail() { echo "FAILED: $*"; exit 1; }
note() { echo "NOTE: $*"; } # the table has it beside the result

# up INTERFACE...: turns them on, and waits until their links are up.
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

# pair: a veth with the ends `near` and `far`, until the case ends.
pair() {
    ip link add near type veth && ip link set veth0 name far || fail 'no veth'
    trap 'ip link del near' EXIT
    up near far
}

# pings INTERFACE COUNT: a ping to each of so many groups. Nobody answers.
pings() {
    ip addr add 10.0.0.1/24 dev "$1" && ip route add 224.0.0.0/4 dev "$1" || fail 'no route'
    pings=
    for group in $(seq "$2"); do ping -c 1 -W 1 "224.0.1.$group" >/dev/null & pings="$pings $!"; done
    wait $pings
    ip addr flush dev "$1"
}

# promiscuous INTERFACE...: until the case ends.
promiscuous() {
    for interface; do ip link set "$interface" promisc on || exit 1; done
    trap "for interface in $*; do ip link set \$interface promisc off; done" EXIT
}

# start NAME COMMAND...: in the background, until it says which sockets it has; its output is in /tmp/NAME. Notes and
# warnings come before.
start() {
    name=$1
    shift
    : >"/tmp/$name" # what an earlier one said is gone before anybody looks
    "$@" >"/tmp/$name" 2>&1 &
    echo $! >"/tmp/$name.pid"
    tries=0
    while ! grep -q ', rings of ' "/tmp/$name" && [ $tries -lt 300 ] && kill -0 "$(cat "/tmp/$name.pid")" 2>/dev/null; do
        tries=$((tries + 1))
        sleep 0.1
    done
    sleep 0.5
}

# stop NAME: asks a command to end, shows its output, and expects its status to be 0.
stop() {
    kill -TERM "$(cat "/tmp/$1.pid")" 2>/dev/null
    ended "$1"
}

# ended NAME: the same of a command that somebody else told to end. A second SIGTERM would kill it.
ended() {
    wait "$(cat "/tmp/$1.pid")"
    status=$?
    echo "--- $1: status $status"
    cat "/tmp/$1"
    [ $status -eq 0 ] || fail "$1 ended with status $status"
}

# mode NAME INTERFACE: where a command's XDP program runs, and whether it copies.
mode() { sed -n "s/^$2: \(.*\), queue.*/\1/p" "/tmp/$1"; }

# figure NAME LABEL: a number of a command's last lines.
figure() { sed -n "s/^ *$2  *\([0-9,]*\).*/\1/p" "/tmp/$1" | head -1 | tr -d ,; }

# exactly NAME LABEL NUMBER, at_least NAME LABEL NUMBER
exactly() { [ "$(figure "$1" "$2")" -eq "$3" ] || fail "$1: $2: $(figure "$1" "$2"), not $3"; }
at_least() { [ "$(figure "$1" "$2")" -ge "$3" ] || fail "$1: $2: $(figure "$1" "$2"), not $3 or more"; }

# send INTERFACE COUNT [OPTION...]: numbered frames in copy mode, $RATE a second.
send() {
    interface=$1 count=$2
    shift 2
    $P gen "$interface" --mode copy --rate ${RATE:-2000} --count "$count" --stats-every 0 "$@" >/tmp/send 2>&1 || { cat /tmp/send; fail 'gen'; }
    exactly send 'packets sent' "$count"
    sleep 0.5
}

# arrive INTERFACE COUNT: waits for so many more packets.
arrive() {
    enough=$(($(received "$1") + $2)) tries=0
    while [ "$(received "$1")" -lt $enough ]; do
        [ $tries -lt 200 ] || fail "$1: not $2 packets in 20 s"
        tries=$((tries + 1))
        sleep 0.1
    done
}

received() { cat "/sys/class/net/$1/statistics/rx_packets"; }

# doctor finds|lacks RULE: while 1,000 frames a second come to eth0.
doctor() {
    start gen $P gen eth1 --mode copy --rate 1000 --stats-every 0
    $P doctor drop --seconds 2 >/tmp/said
    status=$?
    stop gen
    cat /tmp/said
    [ $status -eq 0 ] || [ $status -eq 5 ] || fail "the doctor ended with $status"
    grep -q ": $2 (" /tmp/said
    found=$?
    case "$1 $found" in
        'finds 0' | 'lacks 1') ;;
        *) fail "it $1 $2: no" ;;
    esac
}

# net_test NAME [ARGUMENT...]: a test binary.
net_test() {
    name=$1
    shift
    [ -x "/root/tests/$name" ] || skip "the test binary $name was not built"
    "/root/tests/$name" --test-threads=1 --show-output "$@"
}
