# Runs the cases of a guest: /cases/N.sh, with time limits in /cases/N.seconds. Lines with @@ are for the host.
sysctl -q -w net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
ulimit -c 0
warnings() { dmesg | grep -cE 'WARNING: |BUG: |Call Trace:|general protection|DMAR: .*fault'; }
echo "@@kernel $(uname -r)"
for script in $(ls /cases | grep '^[0-9]*\.sh$' | sort -n); do
    number=${script%.sh}
    echo "@@begin $number"
    before=$(warnings)
    began=$(cut -d. -f1 /proc/uptime)
    # Each case has a session: what it leaves behind is killed with that.
    setsid timeout -s KILL "$(cat "/cases/$number.seconds")" sh -c ". /cases/prelude; . /cases/$script" 2>&1 </dev/null &
    session=$!
    wait $session
    status=$?
    kill -9 -$session 2>/dev/null
    sleep 0.2
    if [ "$(warnings)" -ne "$before" ]; then
        dmesg | tail -30
        echo 'FAILED: the kernel warns'
        status=1
    fi
    echo
    echo "@@end $number $status $(($(cut -d. -f1 /proc/uptime) - began))"
done
