//! The outcome of a workload: its line of the table, and its JSON.

use crate::measure::counted::Counted;
use crate::measure::summary::{Summary, Times, cell};
use crate::measure::workload::Workload;
use crate::measure::{Measured, WorkloadFigures, clock, counted};
use pagepool_cli::report::Terminal;
use serde::Serialize;

/// Figures per buffer. Times are `None` if it did not run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WorkloadOutcome {
    pub name: &'static str,
    /// Linux's equivalent, or "-".
    pub linux_name: &'static str,
    /// Buffers per call.
    pub batch: usize,
    #[serde(flatten)]
    pub times: Times,
    /// The median; null if not counted.
    pub core_cycles_med: Option<f64>,
    /// The median; null if not counted.
    pub instructions: Option<f64>,
    /// Over the measured buffers.
    pub counters: Counted,
    pub buffers: u64,
    /// Over the measured buffers.
    pub minor_faults: u64,
    /// The number of offsets at which packets of the held buffers begin.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub colours: Option<usize>,
    /// Nanoseconds of the workload to compare with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor_ns_med: Option<f64>,
    /// On two cores: its time divided by that workload's in the same turn; the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_floor: Option<f64>,
    /// On one core: its time minus that workload's in the same turn, in nanoseconds; the median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub over_floor_ns: Option<f64>,
    /// It runs again if page faults were the only fault; figures are of the last run.
    pub runs: u32,
    /// Whether its only fault was page faults.
    #[serde(skip)]
    pub faulted: bool,
    /// Why its figures are invalid.
    pub failed: Option<String>,
    pub skipped: Option<String>,
}

/// The width of all columns; a narrower terminal shows only medians.
const WIDTH: usize = 110;

/// The head of [`WorkloadOutcome::line`].
pub fn head() -> String {
    columns(["workload", "Linux's name", "ns min", "med", "max", "tsc med", "core", "instr", "note"])
}

fn columns(cells: [&str; 9]) -> String {
    let [name, linux, min, med, max, tsc, core, instr, note] = cells;
    let line = match Terminal::of_output() {
        Some(Terminal { columns, .. }) if columns < WIDTH => {
            format!("{name:<28} {med:>7} {tsc:>7} {core:>6} {instr:>6}  {note}")
        }
        _ => {
            format!("{name:<28} {linux:<22} {min:>8} {med:>7} {max:>7} {tsc:>7} {core:>6} {instr:>6}  {note}")
        }
    };
    line.trim_end().to_owned()
}

impl WorkloadOutcome {
    /// Judges the figures: counters must obey the rules, and page faults must be within the limit.
    pub fn of(workload: &Workload, figures: WorkloadFigures) -> Self {
        let WorkloadFigures { own, beside, cores, colours } = figures;
        let turn_by_turn =
            |what: fn(f64, f64) -> f64| beside.as_ref().and_then(|floor| median_of_turns(&own, floor, what));
        let fault = fault(&own, workload.buffers_a_fault);
        let wrong_path = counted::check(&own.counted, workload.rules, own.buffers).err();
        Self {
            times: Times::of(&own.ticks),
            core_cycles_med: Summary::median(&own.core_cycles),
            instructions: Summary::median(&own.instructions),
            colours,
            floor_ns_med: beside.as_ref().and_then(|floor| Times::of(&floor.ticks).ns_med),
            of_floor: turn_by_turn(|own, floor| own / floor).filter(|_| cores == 2),
            over_floor_ns: turn_by_turn(|own, floor| (own - floor) / clock::ticks_per_ns())
                .filter(|_| cores == 1),
            faulted: fault.is_some() && wrong_path.is_none(),
            failed: wrong_path.or(fault),
            buffers: own.buffers,
            minor_faults: own.faults,
            counters: own.counted,
            ..Self::named(workload)
        }
    }

    pub fn skipped(workload: &Workload, why: String) -> Self {
        Self { skipped: Some(why), ..Self::named(workload) }
    }

    pub fn failed(workload: &Workload, why: String) -> Self {
        Self { failed: Some(why), ..Self::named(workload) }
    }

    fn named(workload: &Workload) -> Self {
        let Workload { name, linux, batch, .. } = workload;
        Self { name, linux_name: linux, batch: *batch, runs: 1, ..Self::default() }
    }

    /// The line of the table; a second line has the fault.
    pub fn line(&self) -> String {
        let Times { ns_min, ns_med, ns_max, tsc_med } = self.times;
        let times = [ns_min, ns_med, ns_max].map(|t| cell(t, 2));
        let counts = [tsc_med, self.core_cycles_med, self.instructions].map(|c| cell(c, 1));
        let ([min, med, max], [tsc, core, instr]) = (&times, &counts);
        let line = columns([self.name, self.linux_name, min, med, max, tsc, core, instr, &self.note()]);
        match self.failed.as_ref().or(self.skipped.as_ref()) {
            Some(why) => format!("{line}\n    {why}"),
            None => line,
        }
    }

    fn note(&self) -> String {
        let again = if self.runs > 1 { format!(" run {}", self.runs) } else { String::new() };
        (self.remark() + &again).trim_start().to_owned()
    }

    fn remark(&self) -> String {
        match self {
            Self { failed: Some(_), .. } => "FAILED".into(),
            Self { skipped: Some(_), .. } => "SKIP".into(),
            Self { of_floor: Some(ratio), .. } => {
                let decimals = if *ratio < 10.0 { 2 } else { 0 };
                format!("{ratio:.decimals$} floor")
            }
            Self { over_floor_ns: Some(over), .. } => format!("{over:+.1} ns"),
            Self { colours: Some(colours), .. } => format!("{colours} colours"),
            _ => String::new(),
        }
    }
}

/// The median over pairs of turns: a disturbance affects both turns of a pair.
fn median_of_turns(own: &Measured, floor: &Measured, what: fn(f64, f64) -> f64) -> Option<f64> {
    let turns: Vec<f64> = own.ticks.iter().zip(&floor.ticks).map(|(&own, &floor)| what(own, floor)).collect();
    Summary::median(&turns)
}

fn fault(figures: &Measured, buffers_a_fault: u64) -> Option<String> {
    let forgiven = figures.buffers.checked_div(buffers_a_fault).unwrap_or(0);
    (figures.faults > forgiven).then(|| {
        let (faults, buffers) = (figures.faults, figures.buffers);
        format!(
            "{faults} page faults over {buffers} buffers after warm-up, but at most {forgiven} are allowed"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::counted::{Moves, Rule};

    const ROW: Workload = Workload::new("page_fifo1024_touch_nocolour", || Err("never made ready".into()))
        .linux("no-softirq-page_pool01")
        .rules(&[Rule(&["alloc_fast"], Moves::Each)]);

    fn figures(alloc_fast: u64, faults: u64) -> WorkloadFigures {
        let own = Measured {
            ticks: vec![1234.5; 9],
            faults,
            counted: Counted::from_fields([("alloc_fast", alloc_fast)]),
            buffers: 100,
            ..Measured::default()
        };
        WorkloadFigures { own, beside: None, cores: 2, colours: Some(16) }
    }

    #[test]
    fn counters_that_do_not_fit_fail_it() {
        assert_eq!(WorkloadOutcome::of(&ROW, figures(100, 0)).failed, None);
        let outcome = WorkloadOutcome::of(&ROW, figures(99, 0));
        assert!(outcome.failed.as_ref().is_some_and(|why| why.contains("alloc_fast is 99")));
        assert!(outcome.line().contains("FAILED"));
    }

    #[test]
    fn a_page_fault_fails_it() {
        let outcome = WorkloadOutcome::of(&ROW, figures(100, 1));
        assert!(outcome.failed.is_some_and(|why| why.contains("1 page faults")));
        let forgiving = Workload { buffers_a_fault: 50, ..ROW };
        assert_eq!(WorkloadOutcome::of(&forgiving, figures(100, 2)).failed, None);
        assert!(WorkloadOutcome::of(&forgiving, figures(100, 3)).failed.is_some());
    }

    #[test]
    fn lines_fit_110_columns_and_align_with_the_head() {
        let line = WorkloadOutcome::of(&ROW, figures(100, 0)).line();
        assert!(line.len() <= 110, "{}: {line}", line.len());
        let end_of = |text: &str, word: &str| text.find(word).map(|at| at + word.len());
        assert_eq!(end_of(&line, "1234 "), end_of(&head(), "tsc med "));
        assert!(line.ends_with("16 colours"));
        assert!(line.contains("     -      -  "), "no hardware counters: {line}");
    }

    #[test]
    fn the_ratio_to_the_floor_is_taken_turn_by_turn() {
        let floor = Measured { ticks: vec![617.25; 9], ..Measured::default() };
        let mut disturbed = figures(100, 0);
        let mut floor_too = floor;
        for turn in 0..5 {
            disturbed.own.ticks[turn] *= 50.0;
            floor_too.ticks[turn] *= 50.0;
        }
        let outcome = WorkloadOutcome::of(&ROW, WorkloadFigures { beside: Some(floor_too), ..disturbed });
        assert_eq!(outcome.of_floor, Some(2.0));
        assert!(outcome.line().contains("2.00 floor"));
    }

    #[test]
    fn on_one_core_the_difference_to_the_floor_is_noted() {
        let floor = Measured { ticks: vec![1224.5; 9], ..Measured::default() };
        let outcome =
            WorkloadOutcome::of(&ROW, WorkloadFigures { beside: Some(floor), cores: 1, ..figures(100, 0) });
        let expected = 10.0 / clock::ticks_per_ns();
        assert!(outcome.over_floor_ns.is_some_and(|over| (over - expected).abs() < 1e-9));
        assert_eq!(outcome.of_floor, None);
        assert!(outcome.line().ends_with(&format!("+{expected:.1} ns")));
    }

    #[test]
    fn one_that_did_not_run_says_why() {
        let outcome = WorkloadOutcome::skipped(&ROW, "one CPU only".into());
        assert!(outcome.line().ends_with("SKIP\n    one CPU only"));
        assert_eq!(outcome.times.ns_med, None);
    }
}
