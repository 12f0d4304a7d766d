//! A server of metrics: the part of HTTP that Prometheus and `curl` need.
//!
//! Bounds one thread serves all clients. A request has at most 8 KiB and 5 s; an answer must be taken in
//!        10 s. A slow or silent client delays no other. One that keeps sending gets a few calls per round,
//!        and 1 s after its answer. At most 64 clients are connected; another one replaces the client that loses
//!        least, of several the oldest. A round accepts at most 16, so each has several rounds to send its
//!        request.

mod client;
mod request;

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use pagepool_watch::RunFolder;

use self::client::{MOST_BYTES, MetricsClient};
use self::request::{content_type, read_head};
use super::metrics_text::metrics;
use crate::report::output;
use crate::signals::Signals;
use crate::sys::{self, PollFd, PollFlags};

/// How often the server checks for the end of the run, and for clients that are too slow.
const LOOK: Duration = Duration::from_millis(200);
/// The pause after an error of `accept` that persists.
const NAP: Duration = Duration::from_millis(20);
const MOST_CLIENTS: usize = 64;
const A_ROUND: usize = 16;

/// Serves metrics until a signal ends the command.
pub fn serve(address: SocketAddr, folder: &RunFolder, signals: &Signals) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot listen at {address}: {error}");
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    output::line(format_args!("Metrics are at http://{address}/metrics until Ctrl-C."));
    let mut clients: Vec<MetricsClient> = Vec::new();
    while !signals.interrupted() {
        let listening = PollFd::new(&listener, PollFlags::IN);
        let mut waits: Vec<_> = clients.iter().map(MetricsClient::waits_for).chain([listening]).collect();
        sys::wait_for_any(&mut waits, LOOK).map_err(failed)?;
        accept(&listener, &mut clients);
        clients.retain_mut(|client| client.advance(|head, comes_more| answer(head, comes_more, folder)));
    }
    Ok(())
}

/// Accepts waiting clients, at most a round's share.
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
            // The client has gone.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                if sys::is_lack_of_descriptors(&error) {
                    close_one(clients);
                }
                return std::thread::sleep(NAP);
            }
        }
    }
}

/// Closes the client that loses least; of several, the oldest.
fn close_one(clients: &mut Vec<MetricsClient>) {
    if let Some((at, _)) = clients.iter().enumerate().min_by_key(|(_, client)| client.closing_cost()) {
        clients.remove(at);
    }
}

/// The answer to the head of a request; `None` while it is incomplete and more may come.
fn answer(head: &[u8], comes_more: bool, folder: &RunFolder) -> Option<Vec<u8>> {
    let plain = || "text/plain; charset=utf-8".to_owned();
    let short = |status, body: &str| (status, plain(), body.to_owned());
    let asked = read_head(head);
    let has_body = !matches!(asked, Ok(Some(("HEAD", ..))));
    let (status, kind, body) = match asked {
        Ok(None) if comes_more => return None,
        Ok(None) if head.len() < MOST_BYTES => short("400 Bad Request", "The request is incomplete.\n"),
        Ok(None) | Err(httparse::Error::TooManyHeaders) => {
            short("431 Request Header Fields Too Large", "The head is too large: at most 8 KiB.\n")
        }
        Err(_) => short("400 Bad Request", "This is not an HTTP/1 request.\n"),
        Ok(Some(("GET" | "HEAD", "/metrics", format))) => {
            ("200 OK", content_type(format), metrics(folder, format))
        }
        Ok(Some(("GET" | "HEAD", ..))) => short("404 Not Found", "Metrics are at /metrics.\n"),
        Ok(Some(_)) => short("405 Method Not Allowed", "Use GET.\n"),
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let mut text = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n");
    text += &format!("{allow}Connection: close\r\n\r\n");
    if has_body {
        text += &body;
    }
    Some(text.into_bytes())
}
