//! The other thread of a list: it does one thing at a time, and the caller waits for it.

use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

type OtherWork = Box<dyn FnOnce() + Send>;

/// The other thread, while it lives.
#[derive(Debug)]
pub(super) struct OtherThread {
    work: Sender<(OtherWork, Sender<()>)>,
    thread: JoinHandle<()>,
}

impl OtherThread {
    pub(super) fn start() -> Self {
        let (work, inbox) = channel::<(OtherWork, Sender<()>)>();
        let thread = std::thread::spawn(move || {
            for (work, done) in inbox {
                work();
                done.send(()).expect("the list waits for it");
            }
        });
        Self { work, thread }
    }

    /// Runs work, and waits until it is done.
    pub(super) fn run(&mut self, work: impl FnOnce() + Send + 'static) {
        let (done, wait) = channel();
        self.work.send((Box::new(work), done)).expect("the other thread lives");
        wait.recv().expect("the other thread did not panic");
    }

    pub(super) fn end(self) {
        drop(self.work);
        self.thread.join().expect("the other thread did not panic");
    }
}
