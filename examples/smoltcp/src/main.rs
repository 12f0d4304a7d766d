//! TCP and UDP services with smoltcp, beside the kernel's: echo (7), discard (9), a stream (19), HTTP (80).
//!
//! The program shares the interface's address with the kernel. Only packets to these ports come to it: the
//! kernel still answers ARP, ping and ssh. It serves queue 0: on a card with several queues, the kernel gets
//! the packets of the others. Do not run it on an open network: two UDP echoes bounce a packet between each
//! other forever.
//!
//! ```sh
//! cargo build && sudo ../target/debug/pagepool-smoltcp eth1 198.18.0.3/24
//! ```

mod compare;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use pagepool_net::TxMode;
use pagepool_smoltcp::afxdp::{self, Error};
use pagepool_smoltcp::neighbours::Neighbours;
use pagepool_smoltcp::nic::Nic;
use pagepool_smoltcp::own::OwnMemory;
use pagepool_smoltcp::server::{Server, Service};
use smoltcp::wire::{IpCidr, Ipv4Address};

const USAGE: &str = "usage: pagepool-smoltcp INTERFACE ADDRESS/PREFIX [--router ADDRESS] \
    [--allocator pool|own]\n       pagepool-smoltcp --compare RUNS";
/// Sockets of each service.
const SOCKETS: [(Service, usize); 4] =
    [(Service::Echo, 64), (Service::Discard, 16), (Service::Generate, 16), (Service::Http, 64)];
/// Bytes of a socket's buffers.
const BUFFER: usize = 64 << 10;
/// Longest sleep.
const IDLE: Duration = Duration::from_secs(1);

/// What to run.
enum Command {
    Serve { interface: String, address: IpCidr, router: Option<Ipv4Address>, own: bool },
    Compare(usize),
}

fn main() -> ExitCode {
    let result = match parse() {
        Ok(Command::Serve { interface, address, router, own }) => serve(&interface, address, router, own),
        Ok(Command::Compare(runs)) => compare::run(runs),
        Err(error) => Err(format!("{error}\n{USAGE}").into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("smoltcp: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse() -> Result<Command, Error> {
    use lexopt::prelude::*;
    let (mut values, mut router, mut own) = (Vec::new(), None, false);
    let mut args = lexopt::Parser::from_env();
    while let Some(arg) = args.next()? {
        match arg {
            Long("compare") => return Ok(Command::Compare(args.value()?.parse()?)),
            Long("router") => router = Some(args.value()?.parse()?),
            Long("allocator") => own = args.value()?.parse_with(is_own)?,
            Value(value) => values.push(value.string()?),
            _ => return Err(arg.unexpected().into()),
        }
    }
    let [interface, address] = values.try_into().map_err(|_| "an interface and an address are required")?;
    let address = address.parse().map_err(|()| format!("{address} is no address with a prefix"))?;
    Ok(Command::Serve { interface, address, router, own })
}

fn is_own(name: &str) -> Result<bool, &'static str> {
    match name {
        "pool" => Ok(false),
        "own" => Ok(true),
        _ => Err("the allocators are pool and own"),
    }
}

/// Serves until the interface is gone.
fn serve(interface: &str, address: IpCidr, router: Option<Ipv4Address>, own: bool) -> Result<(), Error> {
    let ports = SOCKETS.map(|(service, _)| format!("tcp dst port {}", service.port())).join(" or ");
    let udp = Service::Echo.port();
    let ours = format!("dst host {} and ({ports} or udp dst port {udp}) and not fragment", address.address());
    let phy = afxdp::open(interface, ours.parse()?, TxMode::Auto)?;
    let mac = pagepool_net::Device::info(&phy.device).mac.ok_or("the interface has no MAC address")?;
    println!("{interface}: {ours}");
    let nic = Neighbours::new(phy, interface);
    if own {
        return poll(OwnMemory(nic), (mac, address), router);
    }
    poll(nic, (mac, address), router)
}

fn poll(mut nic: impl Nic, own: ([u8; 6], IpCidr), router: Option<Ipv4Address>) -> Result<(), Error> {
    let mut server = Server::new(&mut nic, own, &SOCKETS, BUFFER);
    router.into_iter().for_each(|router| server.set_router(router));
    let start = Instant::now();
    let now = || smoltcp::time::Instant::from_micros(start.elapsed().as_micros() as i64);
    loop {
        let moved = nic.turn();
        if !server.round(now(), &mut nic) && moved == 0 {
            nic.wait(server.idle(now(), IDLE))?;
        }
    }
}
