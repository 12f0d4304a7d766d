//! A server of metrics: HTTP, as much of it as Prometheus and `curl` need.
//!
//! Bounds one request at a time, of at most 8 KiB, in at most 2 s; the answer is to be taken in 5 s. So a
//!        client that is slow or says nothing keeps others waiting for 7 s at most, and takes no memory.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use pagepool::observe::{MetricsFormat, RunFolder};

use super::metrics_text::metrics;
use crate::engine::interrupt::RunSignals;
use crate::report::output;

/// How often it looks for a client, and whether the user wants an end.
const NAP: Duration = Duration::from_millis(20);
const MOST_BYTES: usize = 8 << 10;
const REQUEST_TIME: Duration = Duration::from_secs(2);
const ANSWER_TIME: Duration = Duration::from_secs(5);
/// Bytes that are written at once.
const PART: usize = 16 << 10;

/// Serves metrics until the user wants an end.
pub fn serve(address: SocketAddr, folder: &RunFolder, signals: &RunSignals) -> Result<(), String> {
    let failed = |error: io::Error| format!("cannot listen at {address}: {error}");
    let listener = TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    output::line(format_args!("Metrics are at http://{address}/metrics until Ctrl-C."));
    while !signals.interrupted() && !output::failed() {
        match listener.accept() {
            // A client that goes away harms nobody.
            Ok((client, _)) => drop(answer(client, folder)),
            Err(_) => std::thread::sleep(NAP), // nobody is there, or went meanwhile
        }
    }
    Ok(())
}

/// Reads a request and answers it.
fn answer(mut client: TcpStream, folder: &RunFolder) -> io::Result<()> {
    client.set_nonblocking(false)?;
    let head = request(&mut client)?;
    let (method, path) = asked(&head);
    let (status, kind, body) = match (method, path) {
        ("GET" | "HEAD", "/metrics") => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ("200 OK", kind, metrics(folder, MetricsFormat::OpenMetrics))
        }
        ("GET" | "HEAD", _) => ("404 Not Found", "text/plain", "Metrics are at /metrics.\n".to_owned()),
        ("", _) => ("400 Bad Request", "text/plain", "This is no HTTP request.\n".to_owned()),
        _ => ("405 Method Not Allowed", "text/plain", "Use GET.\n".to_owned()),
    };
    let length = body.len();
    let mut text = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    if method != "HEAD" {
        text += &body;
    }
    send(&mut client, text.as_bytes())
}

/// The head of a request, as far as it came in time.
fn request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (end, mut head, mut part) = (Instant::now() + REQUEST_TIME, Vec::new(), [0; 1024]);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < MOST_BYTES {
        client.set_read_timeout(Some(left(end)?))?;
        match client.read(&mut part)? {
            0 => break,
            n => head.extend_from_slice(&part[..n]),
        }
    }
    Ok(head)
}

fn send(client: &mut TcpStream, text: &[u8]) -> io::Result<()> {
    let end = Instant::now() + ANSWER_TIME;
    for part in text.chunks(PART) {
        client.set_write_timeout(Some(left(end)?))?;
        client.write_all(part)?;
    }
    client.flush()
}

/// The time until then, or an error if it is over.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The method and the path of a request; no method if it is none.
fn asked(head: &[u8]) -> (&str, &str) {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let mut words = std::str::from_utf8(line).unwrap_or_default().split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some(method), Some(target), Some(version)) if version.starts_with("HTTP/1.") => {
            (method, target.split('?').next().unwrap_or_default())
        }
        _ => ("", ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_method_a_path_and_a_version() {
        assert_eq!(asked(b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n"), ("GET", "/metrics"));
        for none in [&b""[..], b"GET", b"GET /metrics", b"\xff \xff HTTP/1.1\r\n", b"GET / SMTP\r\n\r\n"] {
            assert_eq!(asked(none), ("", ""), "{none:?}");
        }
    }
}
