//! A server of metrics: HTTP, as much of it as Prometheus and `curl` need.
//!
//! Bounds one thread, which waits for all clients together: a request of at most 8 KiB in at most 5 s, an
//!        answer that is taken in 10 s. So one that is slow, or says nothing, keeps nobody waiting. There are
//!        64 at the same time; for one more the connection is closed that has been without a request for the
//!        longest time. A round takes 16, so that each has some rounds in which its request is read.

mod client;
mod request;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::time::Duration;

use pagepool::observe::RunFolder;

use self::client::MetricsClient;
use self::request::{asked, content_type, preferred};
use super::metrics_text::metrics;
use crate::engine::interrupt::RunSignals;
use crate::report::output;
use crate::sys;

/// How often it looks whether the user wants an end, and whether clients are too slow.
const LOOK: Duration = Duration::from_millis(200);
/// The pause after a client that could not be accepted.
const NAP: Duration = Duration::from_millis(20);
const MOST_CLIENTS: usize = 64;
const A_ROUND: usize = 16;

/// Serves metrics until the user wants an end.
pub fn serve(address: SocketAddr, folder: &RunFolder, signals: &RunSignals) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot listen at {address}: {error}");
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    output::line(format_args!("Metrics are at http://{address}/metrics until Ctrl-C."));
    let mut clients: Vec<MetricsClient> = Vec::new();
    while !signals.interrupted() && !output::failed() {
        let waits = clients.iter().map(MetricsClient::waits_for).chain([(listener.as_fd(), false)]);
        sys::wait_for_any(waits, LOOK).map_err(failed)?;
        accept(&listener, &mut clients);
        clients.retain_mut(|client| client.go_on(|head| answer(head, folder)));
    }
    Ok(())
}

/// Takes the clients that wait, a round's worth at most.
fn accept(listener: &TcpListener, clients: &mut Vec<MetricsClient>) {
    for _ in 0..A_ROUND {
        match listener.accept() {
            Ok((stream, _)) => {
                if clients.len() == MOST_CLIENTS {
                    close_one(clients);
                }
                clients.extend(MetricsClient::new(stream));
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            // It went meanwhile, or there is no descriptor for it.
            Err(_) => {
                close_one(clients);
                return std::thread::sleep(NAP);
            }
        }
    }
}

/// Closes the one that is worth least, of several the oldest.
fn close_one(clients: &mut Vec<MetricsClient>) {
    if let Some((at, _)) = clients.iter().enumerate().min_by_key(|(_, client)| client.worth()) {
        clients.remove(at);
    }
}

/// The answer to a request.
fn answer(head: &[u8], folder: &RunFolder) -> Vec<u8> {
    let plain = "text/plain; charset=utf-8".to_owned();
    let (method, path) = asked(head);
    let (status, kind, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => {
            let format = preferred(head);
            ("200 OK", content_type(format), metrics(folder, format))
        }
        ("GET" | "HEAD", _) => ("404 Not Found", plain, "Metrics are at /metrics.\n".to_owned()),
        ("", _) => ("400 Bad Request", plain, "This is no HTTP request.\n".to_owned()),
        _ => ("405 Method Not Allowed", plain, "Use GET.\n".to_owned()),
    };
    let length = body.len();
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if method != "HEAD" {
        text += &body;
    }
    text.into_bytes()
}
