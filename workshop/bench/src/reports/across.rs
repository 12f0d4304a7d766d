//! `pagepool-bench across`: the cost of passing buffers to a second core that returns them, beside DPDK's
//! default mempool and its packet buffers.
//!
//! Each row of a round runs ours, then each of theirs, with `line_round_trip` before and after. Two CPUs of a
//! virtual machine are sometimes near each other and sometimes far, which changes figures by a factor of two
//! to four.
//! Therefore a ratio comes from one pair of runs, and counts only if the CPUs were near, or far, all the
//! time. Each round creates new pools on both sides, because the place of memory changes figures, too.

use crate::measure::counted::check;
use crate::measure::summary::Summary;
use crate::measure::workload::{MakeReady, Plan};
use crate::measure::{clock, measure};
use crate::rivals::dpdk::{Dpdk, DpdkProgram, Kind, huge_pages_reserved};
use crate::rivals::spsc::BURST;
use crate::sys;
use crate::workloads::{handoff, remote, yardsticks};
use pagepool_cli::report::output;
use serde::Serialize;

use super::{Report, table};

/// From this round trip of a line on, CPUs count as far.
const NEAR_NS: f64 = 280.0;
/// For the round trip.
const LOOK: Plan = Plan { repeats: 3, buffers: 2048 };

/// A row: our workload, and DPDK's.
struct AcrossCase {
    calls: &'static str,
    moves: HandedOver,
    touch: bool,
    bulk: usize,
    ready: MakeReady,
}

const fn case(
    calls: &'static str,
    moves: HandedOver,
    touch: bool,
    bulk: usize,
    ready: MakeReady,
) -> AcrossCase {
    AcrossCase { calls, moves, touch, bulk, ready }
}

/// What the first CPU hands over.
struct HandedOver {
    name: &'static str,
    /// Cache lines of a burst of 32: what moves, and of a ring the index for which the slower side waits.
    lines: usize,
}

const HANDLES: HandedOver = HandedOver { name: "handles, 16 bytes", lines: 8 + 1 };
/// A batch's numbers and head, and two rings with a line for each address.
const BATCHES: HandedOver = HandedOver { name: "batches in place", lines: 3 + 2 * (1 + 1) };
const HANDOFF: HandedOver = HandedOver { name: "frames, by handoff", lines: 16 + 1 };
const POINTERS: HandedOver = HandedOver { name: "pointers", lines: 4 + 1 };

const CASES: &[AcrossCase] = &[
    case("single", HANDLES, false, 1, remote::singly::<false>),
    case("single, touched", HANDLES, true, 1, remote::singly::<true>),
    case("bulk of 32", HANDLES, false, BURST, remote::in_bulk::<false>),
    case("bulk of 32, touched", HANDLES, true, BURST, remote::in_bulk::<true>),
    case("bulk of 32", BATCHES, false, BURST, remote::batches::<false>),
    case("bulk of 32, touched", BATCHES, true, BURST, remote::batches::<true>),
    case("single, touched", HANDOFF, true, 1, handoff::one_by_one),
    case("bulk of 32, touched", HANDOFF, true, BURST, handoff::in_bursts),
];

impl AcrossCase {
    /// Cache lines that move between the CPUs per buffer: ours, the mempool's, the packet buffers'.
    /// Calculated. One CPU writes a line, the other reads it, and the first takes it back to write again: so
    /// each line of a burst moves twice. Lines: what is handed over, what returns (numbers of 4 bytes,
    /// pointers of 8), a packet buffer's own two, and with touch one of data.
    fn lines(&self) -> [f64; 3] {
        let touched = if self.touch { BURST } else { 0 };
        let bursts = [self.moves.lines + 2, POINTERS.lines + 4, POINTERS.lines + 4 + 2 * BURST];
        bursts.map(|lines| 2.0 * (lines + touched) as f64 / BURST as f64)
    }
}

#[derive(Clone, Copy, Debug, Serialize)]
struct AcrossPair {
    /// The round trip of a cache line, before and after.
    line_ns: [f64; 2],
    ours_ns: f64,
    mempool_ns: Option<f64>,
    pktmbuf_ns: Option<f64>,
}

impl AcrossPair {
    /// `None` if it changed.
    fn state(&self) -> Option<AcrossState> {
        let [before, after] = self.line_ns.map(|ns| ns < NEAR_NS);
        (before == after).then_some(if before { AcrossState::Near } else { AcrossState::Far })
    }
}

/// The distance of the two CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AcrossState {
    Near,
    Far,
}

impl AcrossState {
    fn name(self) -> &'static str {
        match self {
            Self::Near => "near",
            Self::Far => "far",
        }
    }
}

#[derive(Serialize)]
pub struct AcrossRow {
    calls: &'static str,
    moves: &'static str,
    /// Per buffer: ours, the mempool's, the packet buffers'.
    lines: [f64; 3],
    pairs: Vec<AcrossPair>,
}

pub fn run(plan: Plan, rounds: usize) -> Result<Report<Vec<AcrossRow>>, String> {
    let cpus = sys::two_cpus().ok_or("requires a second CPU, but this process may use only one")?;
    sys::pin_to(cpus[0]);
    let program = DpdkProgram::compile();
    let mut rows: Vec<AcrossRow> = CASES.iter().map(AcrossRow::of).collect();
    let mut failed = Vec::new();
    for round in 1..=rounds {
        output::progress(format_args!("bench across: round {round} of {rounds}"));
        let mut dpdk = program.as_ref().ok().map(|program| program.start(cpus)).transpose()?;
        for (case, row) in CASES.iter().zip(&mut rows) {
            row.pairs.push(pair(plan, case, dpdk.as_mut(), cpus[1], &mut failed)?);
        }
    }
    let mut table = table(&HEAD, 3);
    for row in &rows {
        for state in [AcrossState::Near, AcrossState::Far] {
            cells(row, state).map(|cells| table.add_row(cells));
        }
    }
    Ok(Report { name: "across", about: about(cpus, &program, &rows), results: rows, table, failed })
}

const HEAD: [&str; 12] = [
    "calls",
    "ours moves",
    "CPUs",
    "rounds",
    "ours ns",
    "lines",
    "mempool",
    "lines",
    "ratio",
    "pktmbuf",
    "lines",
    "ratio",
];

impl AcrossRow {
    fn of(case: &AcrossCase) -> Self {
        Self { calls: case.calls, moves: case.moves.name, lines: case.lines(), pairs: Vec::new() }
    }
}

fn pair(
    plan: Plan,
    case: &AcrossCase,
    mut dpdk: Option<&mut Dpdk>,
    second: usize,
    failed: &mut Vec<String>,
) -> Result<AcrossPair, String> {
    let before = look(second)?;
    let ours = measure(plan, (case.ready)()?, None, Some(second))?.own;
    if let Err(why) = check(&ours.counted, remote::BY_MESSAGE, ours.buffers) {
        failed.push(format!("{}, {}: {why}", case.calls, case.moves.name));
    }
    let mut theirs = |kind| {
        let ns = dpdk.as_mut().map(|dpdk| dpdk.measure(kind, case.touch, case.bulk, plan)).transpose()?;
        Ok::<_, String>(ns.and_then(|ns| Summary::median(&ns)))
    };
    let (mempool_ns, pktmbuf_ns) = (theirs(Kind::Mempool)?, theirs(Kind::Pktmbuf)?);
    let ours_ns = Summary::median(&ours.ticks).ok_or("no repetitions")? / clock::ticks_per_ns();
    Ok(AcrossPair { line_ns: [before, look(second)?], ours_ns, mempool_ns, pktmbuf_ns })
}

/// The round trip of a cache line to the second CPU, in nanoseconds.
fn look(second: usize) -> Result<f64, String> {
    let ticks = measure(LOOK, yardsticks::line_round_trip()?, None, Some(second))?.own.ticks;
    Ok(Summary::median(&ticks).ok_or("no repetitions")? / clock::ticks_per_ns())
}

/// A line of the table, if this state occurred.
fn cells(row: &AcrossRow, state: AcrossState) -> Option<Vec<String>> {
    let pairs: Vec<_> = row.pairs.iter().filter(|pair| pair.state() == Some(state)).collect();
    let of = |figure: fn(&AcrossPair) -> Option<f64>| {
        Summary::of(&pairs.iter().filter_map(|pair| figure(pair)).collect::<Vec<_>>())
    };
    let ours = of(|pair| Some(pair.ours_ns));
    ours?;
    let mempool = [of(|pair| pair.mempool_ns), of(|pair| Some(pair.ours_ns / pair.mempool_ns?))];
    let pktmbuf = [of(|pair| pair.pktmbuf_ns), of(|pair| Some(pair.ours_ns / pair.pktmbuf_ns?))];
    let words = |summary: Option<Summary>| {
        summary.map_or("-".into(), |Summary { min, med, max }| format!("{med:.2} ({min:.2}-{max:.2})"))
    };
    let mut cells = vec![row.calls.into(), row.moves.into(), state.name().into(), pairs.len().to_string()];
    let lines = row.lines.map(|lines| format!("{lines:.2}"));
    cells.extend([words(ours), lines[0].clone()]);
    for ([theirs, ratio], lines) in [mempool, pktmbuf].into_iter().zip(&lines[1..]) {
        cells.extend([words(theirs), lines.clone(), words(ratio)]);
    }
    Some(cells)
}

fn about(cpus: [usize; 2], program: &Result<DpdkProgram, String>, rows: &[AcrossRow]) -> String {
    let lines: Vec<f64> = rows.iter().flat_map(|row| &row.pairs).flat_map(|pair| pair.line_ns).collect();
    let Summary { min, med, max } = Summary::of(&lines).unwrap_or(Summary { min: 0.0, med: 0.0, max: 0.0 });
    let mixed = rows.iter().flat_map(|row| &row.pairs).filter(|pair| pair.state().is_none()).count();
    let theirs = match program {
        Ok(program) => format!(
            "mempool: DPDK {}, ring_mp_mc, 4095 objects of 2048 bytes; pktmbuf: 4095 packet buffers with 2048 \
             bytes of data",
            program.version
        ),
        Err(why) => format!("DPDK: not measured: {why}"),
    };
    let huge = if huge_pages_reserved() {
        "in huge pages, both"
    } else {
        "without huge pages: fewer than 32 of 2 MiB are free; /proc/sys/vm/nr_hugepages reserves them"
    };
    format!(
        "per buffer: CPU {} allocates and hands over bursts of 32 through a ring of 1024, CPU {} returns;\n\
         ours: 4096 pages of 2048 bytes, a lane of 8192 slots, a cache of 512; their ring and cache have the \
         same sizes;\n\
         touched: the first CPU writes 8 bytes of each buffer's first line, the second reads them;\n\
         {theirs}; {huge};\n\
         line_round_trip {med:.0} ns ({min:.0} to {max:.0}); near: below {NEAR_NS}; medians of rounds (with \
         minimum and maximum), ratios within a round;\n\
         lines: cache lines that move between the CPUs per buffer, calculated;\n\
         {mixed} pairs left out, because the state changed in between",
        cpus[0], cpus[1],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair_at(line_ns: [f64; 2], ours_ns: f64) -> AcrossPair {
        AcrossPair { line_ns, ours_ns, mempool_ns: Some(4.0), pktmbuf_ns: None }
    }

    #[test]
    fn states_are_never_mixed() {
        let pairs = vec![
            pair_at([60.0, 70.0], 2.0),
            pair_at([60.0, 400.0], 90.0),
            pair_at([420.0, 400.0], 12.0),
            pair_at([60.0, 60.0], 4.0),
        ];
        let row = AcrossRow { pairs, ..AcrossRow::of(&CASES[0]) };
        let near = cells(&row, AcrossState::Near).expect("two pairs");
        let ours = ["2", "3.00 (2.00-4.00)", "0.69"];
        let theirs = ["4.00 (4.00-4.00)", "0.56", "0.75 (0.50-1.00)", "-", "4.56", "-"];
        assert_eq!(near[3..], [&ours[..], &theirs[..]].concat());
        assert_eq!(near.len(), HEAD.len());
        let far = cells(&row, AcrossState::Far).expect("one pair");
        assert_eq!(far[3..5], ["1", "12.00 (12.00-12.00)"]);
    }

    #[test]
    fn a_touched_buffer_moves_a_line_there_and_back() {
        let [plain, touched] = [&CASES[2], &CASES[3]].map(AcrossCase::lines);
        assert_eq!(touched, plain.map(|lines| lines + 2.0));
    }
}
