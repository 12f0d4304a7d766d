//! Takes interfaces down and up, kills peers, and watches what arrives, in one loop with steps of 1 ms. A
//! peer may be killed while an interface is down or traffic recovers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use pagepool_link::{LinkError, Netlink, TwoHosts};

use crate::counts::{Order, PeerCounts};
use crate::flow::Flow;
use crate::holdings::Holdings;
use crate::live::{SoakFigures, SoakSnapshot};
use crate::peer_process::PeerProcess;
use crate::schedule::Schedule;
use pagepool_cli::report::output;
use pagepool_cli::signals::Signals;
use pagepool_cli::traffic::{SharedState, Trigger};

const STEP: Duration = Duration::from_millis(1);
const DOWN: Duration = Duration::from_secs(1);
/// No fault begins in these last seconds, which leaves time to recover.
const LAST: Duration = Duration::from_secs(2);
/// No frame is on its way when none arrived for QUIET; PATIENCE limits the wait for that.
const QUIET: Duration = Duration::from_millis(300);
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone, Debug, Default)]
pub struct FaultReport {
    pub seconds: f64,
    pub flaps: u64,
    pub kills: u64,
    pub peers: [PeerCounts; 2],
    /// Per peer: frames that may have been sent when it was killed.
    pub in_doubt: [u64; 2],
    pub flow: Flow,
    /// After the warm-up, and at the end of the sending time.
    pub holdings: [Holdings; 2],
}

struct LinkEnd {
    netlink: Netlink,
    index: u32,
}

impl LinkEnd {
    fn set_up(&mut self, up: bool) -> Result<(), String> {
        self.netlink.set_up(self.index, up).map_err(failed)
    }
}

fn failed(error: LinkError) -> String {
    error.to_string()
}

pub struct FaultInjector<'a> {
    ends: Vec<LinkEnd>,
    peers: [PeerProcess<'a>; 2],
    state: Arc<SharedState>,
    start: Instant,
    schedule: Schedule,
    report: FaultReport,
    /// The end that is down, and until when.
    down: Option<(usize, Duration)>,
    next_flap: Duration,
    next_kill: Duration,
}

impl<'a> FaultInjector<'a> {
    pub fn new(hosts: &'a TwoHosts, state: &Arc<SharedState>, schedule: &Schedule) -> Result<Self, String> {
        let peers = [PeerProcess::start(&hosts.a, &hosts.b, 0)?, PeerProcess::start(&hosts.b, &hosts.a, 1)?];
        Ok(Self {
            ends: ends(hosts).map_err(failed)?,
            peers,
            state: state.clone(),
            start: Instant::now(),
            schedule: *schedule,
            report: FaultReport::default(),
            down: None,
            next_flap: Duration::from_secs(schedule.flap_every),
            next_kill: Duration::from_secs(schedule.kill_every),
        })
    }

    pub fn run(&mut self, figures: &mut SoakFigures, signals: &Signals) -> Result<(), String> {
        let end = Duration::from_secs(self.schedule.seconds);
        self.start = Instant::now();
        self.report.flow.calm(Duration::ZERO);
        self.report.holdings[0] = Holdings::now();
        loop {
            std::thread::sleep(STEP);
            let now = self.start.elapsed();
            let over = now >= end || signals.interrupted() || output::failed();
            self.flap(now, over, end)?;
            if over {
                break;
            }
            self.kill(now, end)?;
            self.look(now, figures, signals)?;
        }
        self.report.flow.give_up(self.start.elapsed());
        self.report.seconds = self.start.elapsed().as_secs_f64();
        self.report.holdings[1] = Holdings::now();
        Ok(())
    }

    /// Takes the next end down when due, and up again a second later, or at once at the end of the run.
    fn flap(&mut self, now: Duration, over: bool, end: Duration) -> Result<(), String> {
        if let Some((at, until)) = self.down {
            if now >= until || over {
                self.ends[at].set_up(true)?;
                self.down = None;
                self.report.flow.calm(self.start.elapsed());
                self.warmed();
            }
        } else if now >= self.next_flap && now + DOWN + LAST <= end && !over {
            let at = self.report.flaps as usize % self.ends.len();
            self.report.flow.disturb(now);
            self.ends[at].set_up(false)?;
            self.down = Some((at, now + DOWN));
            self.report.flaps += 1;
            self.next_flap += Duration::from_secs(self.schedule.flap_every);
        }
        Ok(())
    }

    /// Kills the next peer when due, even while an interface is down.
    fn kill(&mut self, now: Duration, end: Duration) -> Result<(), String> {
        if now < self.next_kill || now + LAST > end {
            return Ok(());
        }
        self.next_kill += Duration::from_secs(self.schedule.kill_every);
        self.report.flow.disturb(now);
        self.peers[self.report.kills as usize % 2].kill()?;
        self.report.kills += 1;
        if self.down.is_none() {
            self.report.flow.calm(self.start.elapsed());
            self.warmed();
        }
        Ok(())
    }

    /// Restarts the measurement of growth until each kind of fault happened twice: the first allocates what
    /// later ones reuse.
    fn warmed(&mut self) {
        if self.report.flaps <= 1 || self.report.kills <= 1 {
            self.report.holdings[0] = Holdings::now();
        }
    }

    fn look(&mut self, now: Duration, figures: &mut SoakFigures, signals: &Signals) -> Result<(), String> {
        for peer in &mut self.peers {
            peer.must_run()?;
        }
        let [a, b] = [self.peers[0].counts()?, self.peers[1].counts()?];
        self.report.flow.look(now, [b.arrived, a.arrived]);
        if figures.is_for_people() {
            output::progress(format_args!("soak: {} of {} s", now.as_secs(), self.schedule.seconds));
        }
        let why = match (figures.is_due(now), signals.take_request()) {
            (true, _) => Trigger::Timer,
            (false, true) => Trigger::Request,
            (false, false) => return Ok(()),
        };
        let FaultReport { flaps, kills, ref flow, .. } = self.report;
        let (sample, peers, outage) = (self.state.sample(), [a, b], flow.silence);
        figures.show(why, SoakSnapshot { at: now, sample, peers, flaps, kills, outage });
        Ok(())
    }

    /// Stops the senders, and waits until no more frames arrive.
    pub fn quiet(&self) -> Result<(), String> {
        self.tell(Order::Receive)?;
        let (start, mut since, mut before) = (Instant::now(), Instant::now(), None);
        while since.elapsed() < QUIET && start.elapsed() < PATIENCE {
            let now = [self.peers[0].counts()?, self.peers[1].counts()?];
            if before != Some(now) {
                (before, since) = (Some(now), Instant::now());
            }
            std::thread::sleep(STEP);
        }
        Ok(())
    }

    fn tell(&self, order: Order) -> Result<(), String> {
        self.peers.iter().try_for_each(|peer| peer.tell(order))
    }

    /// Ends the peers, after the forwarder has ended.
    pub fn end(mut self) -> Result<FaultReport, String> {
        self.quiet()?;
        for peer in &mut self.peers {
            peer.end()?;
        }
        self.report.peers = [self.peers[0].counts()?, self.peers[1].counts()?];
        self.report.in_doubt = self.peers.each_ref().map(|peer| peer.in_doubt);
        Ok(self.report)
    }
}

/// The link ends in their order of going down: the forwarder's and the hosts' in turn.
fn ends(hosts: &TwoHosts) -> Result<Vec<LinkEnd>, LinkError> {
    let near = |at: usize| {
        let netlink = hosts.run_between(Netlink::open)?;
        Ok::<_, LinkError>(LinkEnd { netlink, index: hosts.near[at].index })
    };
    let far = |host: &pagepool_link::Host| {
        Ok::<_, LinkError>(LinkEnd { netlink: host.namespace.netlink()?, index: host.link.index })
    };
    Ok(vec![near(0)?, far(&hosts.b)?, near(1)?, far(&hosts.a)?])
}
