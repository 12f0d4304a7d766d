//! A connection of the switch: what the front end's messages set up, and its queues.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::message::{Message, pair, request, write_answer};
use super::queue::{Memory, Queue, Region};
use super::settings::{EVENT_INDEX, Fault, Frame, PROTOCOL_FEATURES, Shared, Work};
use crate::sys::shared_memory::SharedMemory;

/// The front end sends a message at once, or is dead.
const PATIENCE: Duration = Duration::from_secs(1);
/// The most packets that wait for one pair, when the switch sends them back.
const MOST_WAITING: usize = 1024;

#[derive(Debug)]
pub(super) struct Session {
    pub(super) stream: UnixStream,
    memory: Memory,
    queues: Vec<Queue>,
    /// It takes no packets and answers nothing any more.
    pub(super) hung: bool,
}

/// Whether a connection goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    GoesOn,
    Ends,
}

impl Session {
    pub(super) fn new(stream: UnixStream, pairs: u16) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let queues = (0..2 * usize::from(pairs)).map(|_| Queue::default()).collect();
        Ok(Self { stream, memory: Memory::default(), queues, hung: false })
    }

    /// The event counters of its running queues.
    pub(super) fn kicks(&self) -> impl Iterator<Item = &OwnedFd> {
        let running = self.queues.iter().filter(|queue| !self.hung && queue.is_running());
        running.filter_map(|queue| queue.kick.as_ref())
    }

    /// Reads a message, and does what it says, or what the test wants to go wrong.
    pub(super) fn message(&mut self, shared: &mut Shared) -> io::Result<Next> {
        let Some(mut message) = Message::read(&self.stream)? else { return Ok(Next::Ends) };
        shared.counts.messages += 1;
        let request = message.request;
        match shared.fault {
            Some(Fault::Silent(at)) if at == request => self.hung = true,
            Some(Fault::Close(at)) if at == request => return Ok(Next::Ends),
            Some(Fault::Nonsense(at)) if at == request => write_answer(&self.stream, request + 1, 0)?,
            _ => {
                let refuses = matches!(shared.fault, Some(Fault::Refuse(at)) if at == request);
                let answer = if refuses { None } else { self.obey(&mut message, shared) };
                match answer {
                    Some(Answer::Is(answer)) => message.answer(&self.stream, answer)?,
                    _ if message.needs_reply => message.answer(&self.stream, answer.is_none().into())?,
                    _ => {}
                }
            }
        }
        Ok(Next::GoesOn)
    }

    /// `None`: refused.
    fn obey(&mut self, message: &mut Message, shared: &Shared) -> Option<Answer> {
        let params = &shared.params;
        let (index, value) = message.pair();
        match message.request {
            request::GET_FEATURES => return Some(Answer::Is(params.features)),
            request::GET_PROTOCOL_FEATURES => return Some(Answer::Is(params.protocol_features)),
            request::GET_QUEUE_NUM => return Some(Answer::Is(params.pairs.into())),
            request::GET_VRING_BASE => {
                let at = self.queues.get_mut(index)?.stop();
                return Some(Answer::Is(pair(index as u32, at.into())));
            }
            request::SET_OWNER | request::SET_PROTOCOL_FEATURES => {}
            request::SET_FEATURES => self.set_features(message.word(0)),
            request::SET_MEM_TABLE => self.map(message)?,
            request::SET_VRING_NUM => self.queues.get_mut(index)?.size = value as u16,
            request::SET_VRING_BASE => self.queues.get_mut(index)?.begin(value as u16),
            request::SET_VRING_ENABLE => self.queues.get_mut(index)?.enabled = value != 0,
            request::SET_VRING_CALL => self.queues.get_mut(index & 0xff)?.call = message.files.pop_front(),
            request::SET_VRING_KICK => self.queues.get_mut(index & 0xff)?.kick = message.files.pop_front(),
            request::SET_VRING_ADDR => {
                let (queue, word) = (self.queues.get_mut(index)?, |number| message.word(number));
                queue.place(&self.memory, word(1), word(2), word(3)).then_some(())?;
            }
            _ => return None,
        }
        Some(Answer::Done)
    }

    fn set_features(&mut self, features: u64) {
        for queue in &mut self.queues {
            queue.has_wishes = features & EVENT_INDEX != 0;
            queue.enabled = features & PROTOCOL_FEATURES == 0; // else a message enables it
        }
    }

    fn map(&mut self, message: &mut Message) -> Option<()> {
        let (count, _) = message.pair();
        self.memory.regions.clear();
        for number in 0..count {
            let word = |field| message.word(1 + 4 * number + field);
            let (device, len, front_end, offset) = (word(0), word(1), word(2), word(3));
            let file = message.files.get(number)?;
            let memory = SharedMemory::map(file, offset, usize::try_from(len).ok()?).ok()?;
            self.memory.regions.push(Region { device, front_end, len, memory });
        }
        Some(())
    }

    /// Moves packets in both directions. Asks to be signalled. True if there is more to do at once.
    pub(super) fn move_packets(&mut self, shared: &mut Shared) -> bool {
        if self.hung {
            return false;
        }
        let (mut more, pairs) = (false, self.queues.len() / 2);
        for pair in 0..pairs {
            let [receive, send] = &mut self.queues[2 * pair..2 * pair + 2] else { continue };
            more |= take_all(pair, send, &self.memory, shared);
            deliver_all(pair, receive, &self.memory, shared);
            let waiting = shared.outbound.get(&(pair as u16)).is_some_and(|waiting| !waiting.is_empty());
            // Without packets for it, a new buffer is of no interest.
            more |= receive.request_signal(&self.memory) && waiting;
        }
        more
    }

    /// Fills all rings with nonsense.
    pub(super) fn scribble(&self, seed: u64) {
        self.queues.iter().filter(|queue| queue.is_running()).for_each(|q| q.scribble(&self.memory, seed));
    }
}

enum Answer {
    Done,
    Is(u64),
}

/// Takes what the driver sent. True if there is more.
fn take_all(pair: usize, queue: &mut Queue, memory: &Memory, shared: &mut Shared) -> bool {
    let pair = pair as u16;
    for _ in 0..queue.size {
        let waiting = shared.outbound.get(&pair).map_or(0, VecDeque::len);
        if shared.work == Work::Nothing || shared.work == Work::Echo && waiting >= MOST_WAITING {
            return false;
        }
        let Some((frame, head)) = queue.take(memory) else { break };
        let frame = Frame { pair, ..frame };
        shared.counts.taken += 1;
        match shared.work {
            Work::Keep => shared.inbound.push_back(frame),
            Work::Echo => shared.outbound.entry(pair).or_default().push_back(frame),
            Work::Drop | Work::Nothing => {}
        }
        queue.complete(memory, head, 0, shared.lie);
        queue.publish(memory, shared.lie);
    }
    queue.request_signal(memory)
}

/// Delivers packets while the driver has buffers.
fn deliver_all(pair: usize, queue: &mut Queue, memory: &Memory, shared: &mut Shared) {
    let Some(waiting) = shared.outbound.get_mut(&(pair as u16)) else { return };
    while let Some(frame) = waiting.front()
        && queue.deliver(memory, frame, shared.lie)
    {
        waiting.pop_front();
        shared.counts.delivered += 1;
    }
}
