//! A program whose lines are read as it prints them.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use serde_json::Value;

use super::{LIMIT, signal, wait_until};

/// A command whose lines are read as they come. It is killed with this value at the latest.
pub struct Reading {
    pub child: Child,
    lines: Receiver<String>,
}

impl Reading {
    pub fn new(mut child: Child) -> Self {
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("it was piped"));
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines }
    }

    /// The next line; `None` when the command has ended.
    pub fn line(&self) -> Option<String> {
        let start = Instant::now();
        let line = self.lines.recv_timeout(LIMIT).ok();
        assert!(line.is_some() || start.elapsed() < LIMIT, "no line came in {LIMIT:?}");
        line
    }

    /// The next line as JSON.
    pub fn json(&self) -> Option<Value> {
        self.line().map(|line| serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line}")))
    }

    /// The first line. `None` after a line that says why the command does not run here.
    pub fn first(&mut self, test: &str) -> Option<Value> {
        let first = self.json();
        if first.is_none() {
            let said = self.said();
            assert!(said.contains("CAP_") || said.contains("CONFIG_XDP_SOCKETS"), "{said}");
            println!("SKIP {test}: {}", said.trim());
        }
        first
    }

    pub fn signal(&self, which: &str) {
        signal(which, self.child.id());
    }

    /// Asks for figures, and gives the line.
    pub fn ask(&self) -> Value {
        self.signal("-USR1");
        let asked = self.json().expect("it runs");
        assert_eq!(asked["line"], "asked");
        asked
    }

    /// Asks until a line has what moved, and gives all lines of that.
    pub fn ask_until(&self, moved: impl Fn(&Value) -> bool) -> Vec<Value> {
        let mut asked = Vec::new();
        wait_until("something moves", || {
            asked.push(self.ask());
            asked.last().is_some_and(&moved)
        });
        asked
    }

    /// All that it prints. Ctrl-C ends it when so many lines like this have come.
    pub fn until_seen(&mut self, count: usize, is_it: impl Fn(&str) -> bool) -> String {
        let (mut shown, mut seen, start) = (String::new(), 0, Instant::now());
        while let Some(line) = self.line() {
            assert!(start.elapsed() < 2 * LIMIT, "{seen} of {count} such lines came:\n{shown}");
            let is_it = is_it(&line);
            shown += &(line + "\n");
            seen += usize::from(is_it);
            if is_it && seen == count {
                self.signal("-INT");
            }
        }
        shown
    }

    /// The same with lines of figures, each of which is of a later second.
    pub fn until_figures(&mut self, count: usize) -> String {
        let shown = self.until_seen(count, |line| second_of(line).is_some());
        let seconds: Vec<_> = shown.lines().filter_map(second_of).collect();
        let are_right = seconds.len() >= count && seconds.is_sorted_by(|one, next| one < next);
        assert!(seconds.is_empty() || are_right, "{seconds:?}:\n{shown}");
        shown
    }

    /// All lines that are still to come, and the status.
    pub fn rest(&mut self) -> (Vec<Value>, Option<i32>) {
        let lines = std::iter::from_fn(|| self.json()).collect();
        (lines, self.child.wait().expect("it is a child").code())
    }

    /// Waits until the process catches SIGUSR1, whose default is to end it.
    pub fn until_it_listens(&self) {
        let status = format!("/proc/{}/status", self.child.id());
        let catches = || {
            let status = std::fs::read_to_string(&status).ok()?;
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"))?.trim().to_owned();
            Some(u64::from_str_radix(&caught, 16).ok()? & 1 << (libc::SIGUSR1 - 1) != 0)
        };
        wait_until("it listens for SIGUSR1", || catches() == Some(true));
    }

    pub fn errors(&mut self) -> BufReader<ChildStderr> {
        BufReader::new(self.child.stderr.take().expect("it was piped"))
    }

    /// What it said on standard error, when it has ended.
    pub fn said(&mut self) -> String {
        let mut said = String::new();
        self.errors().read_to_string(&mut said).expect("text");
        said
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let _ = self.child.kill(); // it has ended, unless a test failed
        let _ = self.child.wait();
    }
}

/// The second that a line of figures is of.
pub fn second_of(line: &str) -> Option<u32> {
    line.split_whitespace().next()?.strip_suffix('s')?.parse().ok()
}
