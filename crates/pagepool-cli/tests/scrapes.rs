//! `pagepool export --listen`: what it answers, to whom, and that no client keeps others waiting.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{scope, sleep};
use std::time::{Duration, Instant};

use crate::between::signal;
use crate::export::{LIMIT, Run, command, interrupt, read};
use pagepool_lab::TempFolder;

/// A server, and where it listens.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start(folder: &TempFolder) -> Self {
        let mut server = command(folder, &["export", "--listen", "127.0.0.1:0"]);
        let mut process = server.stdout(Stdio::piped()).spawn().expect("the binary");
        let mut line = String::new();
        BufReader::new(process.stdout.take().expect("piped")).read_line(&mut line).expect("text");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split('/').next());
        let address = address.expect("an address").to_owned();
        assert!(address.starts_with("127.0.0.1:"), "{line}");
        Self { process, address }
    }

    fn connect(&self) -> TcpStream {
        let client = TcpStream::connect(&self.address).expect("it listens");
        client.set_read_timeout(Some(LIMIT)).expect("a time");
        client
    }

    fn ask(&self, request: &[u8]) -> String {
        let mut client = self.connect();
        let _ = client.write_all(request); // it may have answered already
        let mut answer = Vec::new();
        let _ = client.read_to_end(&mut answer); // of a request that is not read to its end
        String::from_utf8_lossy(&answer).into_owned()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill(); // a test failed
        let _ = self.process.wait();
    }
}

#[test]
fn a_server_answers_requests_and_survives_malformed_ones() {
    let run = Run::new();
    let mut server = Server::start(&run.folder);
    let answer = server.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0"));
    assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
    assert!(read(body).contains_key("pagepool_alloc_fast"));
    let answer = server.ask(b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: text/plain\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{head}");
    assert!(read(body).contains_key("pagepool_alloc_fast_total") && !body.contains("# EOF"), "{body}");
    assert!(server.ask(b"HEAD /metrics HTTP/1.0\r\n\r\n").ends_with("\r\n\r\n"));
    assert!(server.ask(b"GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
    let body = b"POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\nmore text";
    let refused = server.ask(body);
    assert!(refused.starts_with("HTTP/1.1 405 "), "what it sends besides harms no answer: {refused}");
    assert!(refused.contains("\r\nAllow: GET, HEAD\r\n"), "{refused}");
    assert!(server.ask(b"\xff\xfe\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(server.ask(b"GET /metrics HTTP/1.x\r\n\r\n").starts_with("HTTP/1.1 400 "));
    for form in ["GET http://x/metrics HTTP/1.1\r\n\r\n", "\r\nGET /metrics HTTP/1.1\n\n"] {
        let answer = server.ask(form.as_bytes());
        assert!(answer.starts_with("HTTP/1.1 200 "), "{form:?}: {answer}");
    }
    interrupt(&mut server.process);
}

/// A field behind the 8 KiB that are read would be ignored.
#[test]
fn a_head_that_is_too_large_or_has_no_end_is_refused() {
    let folder = TempFolder::new("pagepool-heads").expect("a new folder");
    let mut server = Server::start(&folder);
    let head = |cookie| format!("GET /metrics HTTP/1.1\r\nCookie: {}\r\n", "x".repeat(cookie));
    let accept = "Accept: text/plain\r\n\r\n";
    let fits = server.ask(format!("{}{accept}", head(8000)).as_bytes());
    assert!(fits.starts_with("HTTP/1.1 200 ") && fits.contains("text/plain; version=0.0.4"), "{fits}");
    for cookie in [8150, 8192, 100_000] {
        let refused = server.ask(format!("{}{accept}", head(cookie)).as_bytes());
        assert!(refused.starts_with("HTTP/1.1 431 "), "{cookie}: {refused}");
    }
    let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(1000));
    assert!(server.ask(many.as_bytes()).starts_with("HTTP/1.1 431 "));
    assert!(server.ask(&vec![b'x'; 100_000]).starts_with("HTTP/1.1 431 "));
    for part in ["GET", "GET /metrics HTTP/1.1\r\n", &head(10)] {
        let mut client = server.connect();
        client.write_all(part.as_bytes()).expect("it listens");
        client.shutdown(Shutdown::Write).expect("it is connected");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 400 "), "{part:?}: {answer}");
    }
    interrupt(&mut server.process);
}

/// What comes behind a request is read for the sake of the answer, and not for ever.
#[test]
fn endless_clients_stop_neither_scrapes_nor_ctrl_c() {
    let folder = TempFolder::new("pagepool-floods").expect("a new folder");
    let mut server = Server::start(&folder);
    let (address, start, flood) = (server.address.clone(), Instant::now(), vec![b'x'; 1 << 20]);
    let has_ended = AtomicBool::new(false);
    let goes_on = || !has_ended.load(Ordering::Relaxed) && start.elapsed() < 2 * LIMIT;
    let endless = &|head: &[u8]| {
        while goes_on() {
            let Ok(mut client) = TcpStream::connect(&address) else { continue };
            client.set_write_timeout(Some(Duration::from_secs(1))).expect("a time");
            let _ = client.write_all(head);
            while goes_on() && client.write_all(&flood).is_ok() {} // until the server has enough of it
        }
    };
    let (scrapes, ended) = scope(|threads| {
        let heads = [&b"GET /metrics HTTP/1.1\r\n\r\n"[..], b"POST / HTTP/1.1\r\n\r\n", b"GET /"];
        for head in [heads, heads].concat() {
            threads.spawn(move || endless(head));
        }
        let scrapes = [(); 5].map(|()| server.ask(b"GET /metrics HTTP/1.1\r\n\r\n"));
        signal("-INT", server.process.id());
        let mut ended = None;
        while ended.is_none() && start.elapsed() < LIMIT {
            ended = server.process.try_wait().expect("a child");
            sleep(Duration::from_millis(20));
        }
        has_ended.store(true, Ordering::Relaxed);
        (scrapes, ended)
    });
    assert!(scrapes.iter().all(|answer| answer.starts_with("HTTP/1.1 200 ")), "{scrapes:?}");
    assert!(ended.is_some_and(|status| status.success()), "{ended:?}");
}
