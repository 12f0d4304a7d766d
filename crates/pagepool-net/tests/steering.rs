//! Which packets an expression takes: by its own account, and by the XDP program that it becomes.

use crate::crafted;
use crate::veth;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::crafted::{Dice, expression, extension, fragment6, frame, ip, ip6, tag, udp};
use crate::veth::{CAP_PERFMON, CAP_SYS_ADMIN, Veth};
use pagepool::{Arena, ArenaParams, Bound, Error};
use pagepool_lab::FrameSocket;
use pagepool_net::testing::LoadedMatch;
use pagepool_net::{
    Attach, Device, Match, OpenParams, OpenedDevice, Redirect, XdpProgram, XskMode, open_device,
};
use pagepool_testing::FarEnd;

/// What is missing for programs, asked once: the answer makes a namespace.
fn missing() -> Option<&'static str> {
    static MISSING: OnceLock<Option<String>> = OnceLock::new();
    MISSING.get_or_init(veth::missing).as_deref()
}

/// An expression, and its program if this test may load one.
struct Both {
    expression: Match,
    program: Option<LoadedMatch>,
}

impl Both {
    fn new(text: &str) -> Self {
        let expression: Match = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let load = || LoadedMatch::new(&expression).unwrap_or_else(|error| panic!("{text}: {error}"));
        Self { program: missing().is_none().then(load), expression }
    }

    /// Whether it takes a frame: the same by both, of what the kernel accepts as a frame.
    fn takes(&self, frame: &[u8]) -> bool {
        let takes = self.expression.matches(frame);
        if let Some(program) = self.program.as_ref().filter(|_| frame.len() >= 14) {
            let ran = program.takes(frame).expect("it runs");
            assert_eq!(ran, takes, "{:?} by its program and by itself, of {frame:02x?}", self.expression);
        }
        takes
    }
}

fn assert_takes(text: &str, taken: &[&[u8]], left: &[&[u8]]) {
    let both = Both::new(text);
    for frame in taken {
        assert!(both.takes(frame), "{text} must take {frame:02x?}");
    }
    for frame in left {
        assert!(!both.takes(frame), "{text} must leave {frame:02x?}");
    }
}

fn skip_programs(name: &str) {
    if let Some(why) = missing() {
        println!("SKIP the programs of {name}: {why}");
    }
}

const ARP: [u8; 42] = {
    let mut frame = [0; 42];
    (frame[12], frame[13]) = (0x08, 0x06);
    frame
};

#[test]
fn ether_types_and_tags() {
    skip_programs("ether_types_and_tags");
    let plain = frame(&[], 0x88b5, &[1; 46]);
    let [one, two] = [&[tag(0x8100, 100)][..], &[tag(0x88a8, 7), tag(0x8100, 100)]];
    let [tagged, twice] = [one, two].map(|tags| frame(tags, 0x88b5, &[1; 46]));
    let thrice = frame(&[tag(0x9100, 7), tag(0x8100, 8), tag(0x8100, 100)], 0x88b5, &[1; 46]);
    assert_takes("ethertype 0x88b5", &[&plain, &tagged, &twice], &[&thrice, &ARP]);
    assert_takes("ether proto 34997", &[&plain], &[&ARP]);
    assert_takes("ethertype 0x8100", &[&thrice], &[&plain, &tagged, &twice]);
    assert_takes("vlan", &[&tagged, &twice, &thrice], &[&plain, &ARP]);
    assert_takes("vlan 100", &[&tagged, &twice], &[&plain, &thrice]);
    assert_takes("vlan 7 and vlan 100", &[&twice], &[&tagged, &thrice]);
    assert_takes("not vlan and ethertype 0x88b5", &[&plain], &[&tagged, &twice, &ARP]);
    assert_takes("arp", &[&ARP], &[&plain]);
    let cut = |frame: &[u8], len: usize| frame[..len].to_vec();
    assert_takes("vlan 100", &[&cut(&tagged, 18)], &[&cut(&tagged, 17), &cut(&tagged, 14)]);
    // Nothing of a cut tag is known, and of a cut second one still the first.
    assert_takes("vlan 7", &[&cut(&twice, 18)], &[]);
    assert_takes(
        "ethertype 0x88b5",
        &[&cut(&plain, 14), &cut(&twice, 22)],
        &[&cut(&plain, 13), &cut(&twice, 21)],
    );
    assert_takes("not ethertype 0x88b5", &[&cut(&plain, 13), &[]], &[]);
}

#[test]
fn ports_of_whole_packets_and_of_first_fragments() {
    skip_programs("ports_of_whole_packets_and_of_first_fragments");
    let payload = udp(1111, 4789);
    let whole = frame(&[], 0x0800, &ip([10, 1, 2, 3], [192, 168, 0, 1], 17, 0, 0, &payload));
    let options = frame(&[], 0x0800, &ip([10, 1, 2, 3], [192, 168, 0, 1], 17, 0, 10, &payload));
    let first = frame(&[], 0x0800, &ip([10, 1, 2, 3], [192, 168, 0, 1], 17, 0x2000, 0, &payload));
    let later = frame(&[], 0x0800, &ip([10, 1, 2, 3], [192, 168, 0, 1], 17, 0x2001, 0, &payload));
    let last = frame(&[], 0x0800, &ip([10, 1, 2, 3], [192, 168, 0, 1], 17, 0x00b9, 0, &payload));
    let unfragmented = frame(&[], 0x0800, &ip([10, 1, 2, 3], [192, 168, 0, 1], 17, 0x4000, 0, &payload));
    let gre = frame(&[], 0x0800, &ip([10, 1, 2, 3], [192, 168, 0, 1], 47, 0, 0, &payload));
    let all: [&[u8]; 4] = [&whole, &options, &first, &unfragmented];
    for text in ["port 4789", "dst port 4789", "src port 1111", "udp dst port 4789", "portrange 4000-5000"] {
        assert_takes(text, &all, &[&later, &last, &gre, &ARP]);
    }
    for text in ["src port 4789", "tcp port 4789", "portrange 4790-5000", "ip6 and port 4789", "port 0"] {
        assert_takes(text, &[], &all);
    }
    assert_takes("udp", &[&whole, &options, &first, &later, &last], &[&gre]);
    assert_takes("fragment", &[&first, &later, &last], &[&whole, &options, &unfragmented, &gre, &ARP]);
    assert_takes("udp and not fragment", &[&whole], &[&first, &later, &gre]);
    assert_takes("not port 4789", &[&later, &gre, &ARP], &all);
    assert_takes("proto gre", &[&gre], &all);
    assert_takes("port 4789", &[&whole[..38]], &[&whole[..37], &whole[..33], &whole[..14]]);
    assert_takes("udp", &[&whole[..34]], &[&whole[..33]]);
    let mut odd = whole.clone();
    odd[14] = 0x44; // a header of four words
    assert_takes("udp or net 0.0.0.0/0", &[&whole], &[&odd]);
    odd[14] = 0x65; // of another version
    assert_takes("udp or net 0.0.0.0/0", &[], &[&odd]);
    assert_takes("ip", &[&odd], &[&ARP]);
}

#[test]
fn addresses_and_prefixes() {
    skip_programs("addresses_and_prefixes");
    let v4 = frame(&[], 0x0800, &ip([10, 1, 2, 3], [192, 168, 0, 1], 17, 0, 0, &udp(1, 2)));
    let tagged = frame(&[tag(0x8100, 5)], 0x0800, &ip([10, 1, 2, 3], [192, 168, 0, 1], 1, 0, 0, &[]));
    let ([from, to], payload) = (["fd00:1::3", "2001:db8::ff:1"], udp(1, 2));
    let v6 = frame(&[], 0x86dd, &ip6(from, to, 17, &[], &payload));
    for text in [
        "host 10.1.2.3",
        "src host 10.1.2.3",
        "dst net 192.168.0.0/16",
        "net 10.1.2.2/31",
        "src net 0.0.0.0/0",
        "ip net 192.168.0.1/32",
    ] {
        assert_takes(text, &[&v4, &tagged], &[&v6, &ARP, &v4[..33]]);
    }
    for text in ["dst host 10.1.2.3", "src net 192.168.0.0/16", "net 10.1.2.4/30", "ip6 net 0.0.0.0/0"] {
        assert_takes(text, &[], &[&v4, &tagged, &v6]);
    }
    for text in [
        "host fd00:1::3",
        "src net fd00::/8",
        "dst net 2001:db8::/32",
        "net 2001:db8::fe:0/111",
        "dst host 2001:db8::ff:1",
        "net ::/0",
    ] {
        assert_takes(text, &[&v6], &[&v4, &ARP, &v6[..53]]);
    }
    for text in ["dst net fd00::/8", "net fd00:1::4/127", "net 2001:db8::fe:0/112", "net fd01::/16"] {
        assert_takes(text, &[], &[&v6, &v4]);
    }
}

#[test]
fn extension_headers_are_skipped_up_to_six() {
    skip_programs("extension_headers_are_skipped_up_to_six");
    let packet = |first: u8, headers: &[Vec<u8>]| {
        frame(&[], 0x86dd, &ip6("fd00::1", "fd00::2", first, &headers.concat(), &udp(53, 5353)))
    };
    let plain = packet(17, &[]);
    // Of 8 bytes, of 24, authentication of 12, and the longest.
    let chain =
        packet(0, &[extension(60, 8), extension(43, 24), extension(51, 8), crafted::authentication(17, 12)]);
    let long = packet(60, &[extension(17, 2048)]);
    let six: Vec<_> = [60, 60, 60, 60, 60, 17].map(|next| extension(next, 8)).into();
    let seven: Vec<_> = [60, 60, 60, 60, 60, 60, 17].map(|next| extension(next, 8)).into();
    let (six, seven) = (packet(0, &six), packet(0, &seven));
    let atomic = packet(44, &[fragment6(17, 0)]);
    let first = packet(44, &[fragment6(17, 1)]);
    let later = packet(44, &[fragment6(17, 0x10)]);
    let first_behind = packet(0, &[extension(44, 8), fragment6(60, 1), extension(17, 16)]);
    for text in ["udp", "port 53", "dst port 5353", "ip6 proto udp", "ip6 and portrange 50-60"] {
        assert_takes(text, &[&plain, &chain, &long, &six, &atomic, &first, &first_behind], &[&seven, &ARP]);
    }
    assert_takes("udp", &[&later], &[]);
    assert_takes("port 53", &[], &[&later]);
    assert_takes("fragment", &[&first, &later, &first_behind], &[&plain, &atomic, &chain, &six, &seven]);
    assert_takes("net fd00::/16", &[&seven, &later], &[]);
    assert_takes("proto 60 or proto 0 or proto 44", &[], &[&seven, &chain, &atomic]);
    assert_takes(
        "udp",
        &[&chain[..14 + 40 + 8 + 24 + 8 + 12]],
        &[&chain[..14 + 40 + 8 + 24 + 8 + 7], &long[..61]],
    );
}

#[test]
fn what_the_kernel_needs_can_be_left_to_it() {
    skip_programs("what_the_kernel_needs_can_be_left_to_it");
    let ping = frame(&[], 0x0800, &ip([10, 0, 0, 1], [10, 0, 0, 2], 1, 0, 0, &[8, 0]));
    let icmp6 = |kind| frame(&[], 0x86dd, &ip6("fe80::1", "ff02::1", 58, &[], &[kind, 0, 0, 0]));
    let behind = frame(&[], 0x86dd, &ip6("fe80::1", "ff02::1", 0, &extension(58, 8), &[135, 0, 0, 0]));
    let data = frame(&[], 0x0800, &ip([10, 0, 0, 1], [10, 0, 0, 2], 6, 0, 0, &udp(80, 1025)));
    let [ping6, solicit, last, next] = [128, 133, 137, 138].map(icmp6);
    assert_takes(
        "not (arp or icmp or nd)",
        &[&data, &ping6, &next],
        &[&ARP, &ping, &solicit, &last, &behind],
    );
    assert_takes("!(arp||icmp||icmp6)", &[&data], &[&ARP, &ping, &ping6, &next, &solicit]);
    let mut as_v4 = ping.clone();
    (as_v4[23], as_v4[34]) = (58, 135); // the number of ICMPv6, in a packet of IPv4
    assert_takes("nd or icmp6", &[], &[&as_v4]);
    assert_takes("nd", &[], &[&solicit[..54]]);
}

#[test]
fn all_and_nothing() {
    skip_programs("all_and_nothing");
    assert_takes("all", &[&ARP], &[]);
    assert_takes("not all", &[], &[&ARP]);
    assert_takes("all and (arp or all)", &[&ARP], &[]);
    assert_takes("udp and not all or arp", &[&ARP], &[]);
    assert_takes("not (all and not arp)", &[&ARP], &[]);
    assert_eq!(Match::default(), "all".parse().unwrap());
    assert_eq!(" udp  port 53 ".parse::<Match>().unwrap().to_string(), "udp  port 53");
}

/// Random expressions over random packets.
#[test]
fn the_program_and_the_expression_agree() {
    skip_programs("the_program_and_the_expression_agree");
    let mut dice = Dice::new(0x5eed);
    let (mut taken, mut all) = (0, 0);
    for _ in 0..100 {
        let both = Both::new(&expression(&mut dice, 3));
        for _ in 0..60 {
            taken += usize::from(both.takes(&crafted::random(&mut dice)));
            all += 1;
        }
    }
    assert!(taken > all / 10 && taken < all - all / 10, "{taken} of {all}: they are to differ");
}

#[test]
fn the_largest_expressions_are_loaded() {
    skip_programs("the_largest_expressions_are_loaded");
    let hosts: Vec<_> = (0..256).map(|n| format!("host 2001:db8::{n:x}")).collect();
    let from = |n: u32| frame(&[], 0x86dd, &ip6("fd00::1", &format!("2001:db8::{n:x}"), 6, &[], &[]));
    assert_takes(&hosts.join(" or "), &[&from(0), &from(255)], &[&from(256)]);
    let kinds = [
        "vlan 7",
        "dst port 80",
        "net 10.0.0.0/8",
        "fragment",
        "nd",
        "icmp",
        "portrange 1-9",
        "net fd00::/9",
    ];
    let mixed: Vec<_> = (0..32).flat_map(|_| kinds).map(|kind| format!("not ({kind})")).collect();
    assert_takes(
        &mixed.join(" and "),
        &[&ARP],
        &[&from(0)[..0], &frame(&[tag(0x8100, 7)], 0x88b5, &[])][1..],
    );
    let one_more = format!("{} or arp", hosts.join(" or ")).parse::<Match>().unwrap_err().to_string();
    assert!(one_more.contains("at most 256 parts"), "{one_more}");
    let deep = format!("{}arp{}", "(".repeat(31), ")".repeat(31));
    assert_takes(&deep, &[&ARP], &[]);
    let deeper = "not ".repeat(100_000) + "arp";
    assert!(deeper.parse::<Match>().unwrap_err().to_string().contains("at most 32"));
}

#[test]
fn what_is_no_expression_is_refused_by_word_and_column() {
    for (text, word, remedy) in [
        ("", "its end at column 1", "one of all, ethertype"),
        ("udp prot 80", "\"prot\" at column 5", "and, or, or the end"),
        ("udp and", "its end at column 8", "one of all"),
        ("(udp", "its end at column 5", "a closing parenthesis"),
        ("udp)", "\")\" at column 4", "and, or, or the end"),
        ("udp or tcp and arp", "\"and\" at column 12", "parentheses"),
        ("ether host 1", "\"host\" at column 7", "proto"),
        ("ethertype 0x12345", "\"0x12345\" at column 11", "0 to 0xffff"),
        ("ethertype -1", "\"-1\" at column 11", "0 to 0xffff"),
        ("ethertype +1", "\"+1\" at column 11", "0 to 0xffff"),
        ("ethertype 0x+1", "\"0x+1\" at column 11", "0 to 0xffff"),
        ("vlan 4096", "\"4096\" at column 6", "0 to 4095"),
        ("proto 256", "\"256\" at column 7", "0 to 255, icmp"),
        ("ip proto foo", "\"foo\" at column 10", "0 to 255, icmp"),
        ("port http", "\"http\" at column 6", "0 to 65535"),
        ("tcp dst port 65536", "\"65536\" at column 14", "0 to 65535"),
        ("tcp src host 10.0.0.1", "\"host\" at column 9", "port or portrange"),
        ("portrange 9-1", "\"9-1\" at column 11", "5000-5999"),
        ("portrange 9", "\"9\" at column 11", "5000-5999"),
        ("host example.com", "\"example.com\" at column 6", "not looked up"),
        ("host 10.0.0.0/8", "\"10.0.0.0/8\" at column 6", "an IPv4 or IPv6 address"),
        ("net 10.0.0.0", "\"10.0.0.0\" at column 5", "10.0.0.0/8"),
        ("net 10.0.0.0/33", "\"10.0.0.0/33\" at column 5", "10.0.0.0/8"),
        ("net 10.1.0.0/8", "\"10.1.0.0/8\" at column 5", "no bits set after the prefix: 10.0.0.0/8"),
        ("net fd00::1/64", "\"fd00::1/64\" at column 5", "no bits set after the prefix: fd00::/64"),
        ("src 10.0.0.1", "\"10.0.0.1\" at column 5", "host, net, port or portrange"),
        ("udp & tcp", "\"&\" at column 5", "and, or, or the end"),
        ("ärp", "\"ärp\" at column 1", "one of all"),
        ("\u{7f}\n", "\"\\u{7f}\" at column 1", "one of all"),
    ] {
        let error = text.parse::<Match>().expect_err(text).to_string();
        assert!(error.contains(word) && error.contains(remedy), "{text}: {error}");
    }
}

/// Longest a packet may take.
const LIMIT: Duration = veth::LIMIT;

fn opened(steer: &str) -> Result<OpenedDevice, Error> {
    let arena = Arena::new(ArenaParams { max_bytes: 8 << 20, commit_all: true, ..Default::default() })?;
    let mut params = OpenParams { rx_ring: 256, tx_ring: 256, ..Default::default() };
    params.af_xdp.steer = Some(steer.parse()?);
    params.af_xdp.umem.mode = XskMode::Copy;
    open_device("af_xdp:near0", &params, &arena)
}

/// How many of the last packets came to the socket, and how many to the kernel.
fn counts(device: &mut dyn Device, pool: &Bound, kernel: &FrameSocket, sent: usize) -> (usize, usize) {
    let (mut ours, mut theirs, start) = (0, 0, Instant::now());
    let (mut packets, mut frame) = (Vec::with_capacity(64), [0; 1600]);
    let counted = |frame: &[u8]| frame[12..14] == [0x88, 0xb5]; // not what the kernel sends by itself
    while ours + theirs < sent && start.elapsed() < LIMIT {
        device.receive(pool, &mut packets, 64);
        ours += packets.drain(..).filter(|packet| counted(packet.data())).count();
        while let Some(len) = kernel.receive(&mut frame).expect("the interface is there") {
            theirs += usize::from(counted(&frame[..len.min(1600)]));
        }
        std::thread::yield_now();
    }
    (ours, theirs)
}

#[test]
fn rules_are_exchanged_while_packets_come_and_none_is_lost() {
    let name = "rules_are_exchanged_while_packets_come_and_none_is_lost";
    if let Some(why) = missing() {
        return println!("SKIP {name}: {why}");
    }
    let veth = Veth::new(1, 1500);
    let kernel = FrameSocket::open_here("near0").expect("it is there");
    let OpenedDevice { device, pool, redirect, .. } =
        opened("vlan 5 and ethertype 0x88b5").expect("nothing is attached");
    let (redirect, pool) = (redirect.expect("it was attached here"), pool.bind());
    let mut device = device;
    let mut far = veth.far_end(0);
    let [tagged, plain] = [&[tag(0x8100, 5)][..], &[]].map(|tags| frame(tags, 0x88b5, &[0; 46]));
    let mut sent = |frame: &[u8], count: usize| (0..count).for_each(|_| assert!(far.send(frame)));
    sent(&plain, 20);
    assert_eq!(counts(&mut *device, &pool, &kernel, 20), (0, 20));
    let first = redirect.program_id();
    redirect.steer(&"not vlan and ethertype 0x88b5".parse().unwrap()).expect("it is attached");
    assert_ne!(redirect.program_id(), first);
    sent(&plain, 20);
    assert_eq!(counts(&mut *device, &pool, &kernel, 20), (20, 0));
    for round in 0..20 {
        sent(&plain, 10);
        redirect
            .steer(&if round % 2 == 0 { "not all" } else { "all" }.parse().unwrap())
            .expect("it is attached");
        sent(&plain, 10);
        let (ours, theirs) = counts(&mut *device, &pool, &kernel, 20);
        assert_eq!(ours + theirs, 20, "round {round}");
    }
    redirect.stop();
    redirect.steer(&"not all".parse().unwrap()).expect("a stopped one takes rules, too");
    sent(&plain, 20);
    assert_eq!(counts(&mut *device, &pool, &kernel, 20), (0, 20), "it is stopped");
    redirect.steer(&Match::default()).expect("a stopped one takes rules, too");
    redirect.start().expect("a second time");
    sent(&tagged, 1); // the kernel's may be without its tag
    sent(&plain, 20);
    assert_eq!(counts(&mut *device, &pool, &kernel, 20).0, 20);
}

#[test]
fn steering_without_the_right_is_refused_with_the_reason() {
    let name = "steering_without_the_right_is_refused_with_the_reason";
    if let Some(why) = missing() {
        return println!("SKIP {name}: {why}");
    }
    let _veth = Veth::new(1, 1500);
    let refused = |by: &str, lacking: &[u32]| {
        veth::without(lacking, || {
            let redirect = Redirect::load("near0", Attach::Auto, false).expect("it may load");
            redirect.steer(&by.parse().expect("an expression")).map_err(|error| error.to_string())
        })
    };
    for by in ["ethertype 0x88b5 or vlan 7", "net 10.0.0.0/8 or net fd00::/8", "udp port 53"] {
        // Newer kernels accept more without it.
        let error = refused(by, &[CAP_SYS_ADMIN, CAP_PERFMON]).err();
        let names_it = |error: &str| error.contains("no CAP_PERFMON:") && error.contains(&format!("{by:?}"));
        assert!(error.as_deref().is_none_or(names_it), "{error:?}");
        assert_eq!(refused(by, &[CAP_SYS_ADMIN]), Ok(()), "{by}");
    }

    let redirect = Redirect::load("near0", Attach::Auto, false).expect("it may load");
    let other = Redirect::over_map(redirect.map().try_clone_to_owned().expect("a descriptor"));
    let error = other.steer(&Match::default()).expect_err("its program is another's").to_string();
    assert!(error.contains("match is all") && error.contains("not this Redirect's"), "{error}");
    let arena =
        Arena::new(ArenaParams { max_bytes: 8 << 20, commit_all: true, ..Default::default() }).unwrap();
    let mut params = OpenParams::default();
    (params.af_xdp.program, params.af_xdp.steer) = (XdpProgram::None, Some(Match::default()));
    let error = open_device("af_xdp:near0", &params, &arena).map(drop).expect_err("nothing is steered");
    assert!(error.to_string().contains("af_xdp.steer is all"), "{error}");
}
