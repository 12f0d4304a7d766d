//! The verdict of a demonstration.

use pagepool::PoolRef;

use super::plan::DemoAction;
use crate::report::{LossLimit, LossShare, Verdict};
use crate::traffic::figures::losses;
use crate::traffic::{PortSample, figures};

#[derive(Debug)]
pub struct DemoResult {
    /// `in_memory` if both NICs are; otherwise where the XDP program ran, and how the bytes were copied:
    /// `af_xdp_native_copy`, for example.
    pub mode: String,
    pub action: DemoAction,
    pub size: usize,
    pub seconds: f64,
    pub sent: u64,
    /// Packets that reached the end of their path.
    pub arrived: u64,
    pub corrupt: u64,
    pub gbit_s: Option<f64>,
    /// Both ports at the end of the warm-up.
    pub warm: Vec<PortSample>,
    /// Both ports when everything had drained.
    pub end: Vec<PortSample>,
}

impl DemoResult {
    /// Judges the run, with the pools, which have ended, too.
    pub fn verdict(&self, pools: &[PoolRef], limit: LossLimit) -> Verdict {
        let mut verdict = Verdict::new(figures::PROOF);
        self.packets(&mut verdict, limit);
        self.memory(&mut verdict, pools);
        verdict
    }

    fn packets(&self, verdict: &mut Verdict, limit: LossLimit) {
        let Self { mode, action, size, seconds, sent, arrived, corrupt, gbit_s, end, .. } = self;
        let places = losses::at_full_queues(end);
        let lost = places.iter().map(|(_, count)| count).sum();
        // Packets that neither arrived nor are known to be lost, or that arrived without being sent.
        let unaccounted = sent.abs_diff(arrived + lost);
        let pps = *arrived as f64 / seconds;
        verdict.field("mode", mode);
        verdict.field("action", action.name());
        verdict.field("size", size);
        verdict.field("seconds", seconds);
        verdict.field("pps", pps);
        verdict.some_field("gbit_s", *gbit_s);
        verdict.field("sent", sent);
        verdict.field("unaccounted", unaccounted);
        verdict.field("corrupt", corrupt);
        let gbit = gbit_s.map(|gbit_s| format!("{gbit_s:.2}"));
        gbit.iter().for_each(|gbit| verdict.text_row("Gbit/s", gbit, "TCP, kernel to kernel"));
        verdict.count("packets", *arrived, "packets", self.checked());
        verdict.row("packets/s", pps as u64, &format!("over {seconds:.1} s"));
        verdict.count("lost_total", lost, "lost, a queue was full", self.why_lost(lost));
        verdict.row("damaged or not accounted for", corrupt + unaccounted, "must be 0");
        verdict.loss(&LossShare::new(*sent, places, limit));
        verdict.fail_if(*arrived == 0, || "no packet arrived".into());
        let is_empty = gbit_s.is_some_and(|gbit_s| gbit_s <= 0.0); // connecting takes packets, too
        verdict.fail_if(is_empty, || "no byte of the transfer arrived".into());
        verdict.fail_count(unaccounted, "packets are not accounted for");
        verdict.fail_count(*corrupt, "packets were damaged");
    }

    fn memory(&self, verdict: &mut Verdict, pools: &[PoolRef]) {
        let pages_taken = pools.iter().map(|pool| pool.stats().hold).sum::<u64>();
        let nic_errors = figures::nic_errors(&self.end);
        let page_size = pools.first().map_or(0, |pool| pool.area().page_size());
        let mebibytes = pages_taken as f64 * page_size as f64 / f64::from(1 << 20);
        let note = format!("{mebibytes:.1} MiB");
        verdict.count("pages_taken", pages_taken, "pages taken from the arena", &note);
        figures::judge_pools(verdict, &self.warm, &self.end, pools);
        verdict.field("nic_errors", nic_errors);
        verdict.field("ports", self.end.iter().map(PortSample::fields).collect::<Vec<_>>());
        verdict.fail_count(nic_errors, "descriptors or lengths of the NICs were invalid");
    }

    fn why_lost(&self, lost: u64) -> &'static str {
        match (lost, self.gbit_s) {
            (0, _) => "",
            (_, None) => "the source is faster than the forwarder",
            (_, Some(_)) => "TCP sends them again",
        }
    }

    fn checked(&self) -> &'static str {
        match (self.gbit_s, self.action) {
            (Some(_), _) => "every byte of TCP checked",
            (None, DemoAction::Drop) => "dropped unread",
            (None, _) => "every byte checked on arrival",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagepool::{Arena, ArenaParams, Holders, Pool, PoolParams};

    const RETURNED: &str = "every buffer was returned";
    const WHOLE: &str = "every buffer was returned; no packet of 10 was lost";

    /// Ten packets without a failure.
    fn well() -> DemoResult {
        let ports = vec![PortSample::default(); 2];
        let (warm, end) = (ports.clone(), ports);
        let action = DemoAction::Forward;
        let mode = "in_memory".to_owned();
        DemoResult {
            mode,
            action,
            size: 64,
            seconds: 1.0,
            sent: 10,
            arrived: 10,
            corrupt: 0,
            gbit_s: None,
            warm,
            end,
        }
    }

    /// The last line for people, which must agree with the status.
    fn last_line(result: &DemoResult, pools: &[PoolRef]) -> String {
        let verdict = result.verdict(pools, LossLimit::default());
        let text = verdict.to_string();
        assert_eq!(verdict.is_ok(), text.contains("PASS"), "{text}");
        text.lines().last().unwrap_or("").to_owned()
    }

    #[test]
    fn whatever_went_wrong_is_said() {
        assert!(!last_line(&well(), &[]).contains("FAIL"));
        for sent in [8, 12] {
            let odd = last_line(&DemoResult { sent, ..well() }, &[]);
            let all = format!("{RETURNED}; no packet of {sent} was lost");
            assert_eq!(odd, format!("FAIL: 2 packets are not accounted for; {all}"));
        }
        let none = last_line(&DemoResult { sent: 0, arrived: 0, ..well() }, &[]);
        assert_eq!(none, format!("FAIL: no packet arrived; {RETURNED}"));
        let empty = last_line(&DemoResult { gbit_s: Some(0.0), ..well() }, &[]);
        assert_eq!(
            empty,
            format!("FAIL: no byte of the transfer arrived; {WHOLE}"),
            "packets alone are none"
        );
        let corrupt = last_line(&DemoResult { corrupt: 3, ..well() }, &[]);
        assert_eq!(corrupt, format!("FAIL: 3 packets were damaged; {WHOLE}"));
        let mut slow = well();
        slow.end[1].pool.0.alloc_slow = 4;
        assert_eq!(last_line(&slow, &[]), format!("FAIL: 4 calls to the arena after the warm-up; {WHOLE}"));
        let mut wrong = well();
        (wrong.end[0].nic.tx_bad_descriptor, wrong.end[1].nic.faults) = (2, 3);
        let invalid = "FAIL: 5 descriptors or lengths of the NICs were invalid";
        assert_eq!(last_line(&wrong, &[]), format!("{invalid}; {WHOLE}"));
        let mut dropped = well();
        (dropped.sent, dropped.end[0].port.pass_refused, dropped.end[1].port.tx_overflow) = (15, 3, 2);
        let known = last_line(&dropped, &[]);
        let lost = "33.3 % of 15 packets were lost (not forwarded 20.0 %, transmit 13.3 %)";
        assert_eq!(known, format!("PASS: {}; {lost}", figures::PROOF));
        let limited = dropped.verdict(&[], LossLimit { max_loss: Some(33.0) }).to_string();
        assert!(limited.contains("\nFAIL: more packets were lost than --max-loss 33 allows; "), "{limited}");
        (dropped.sent, dropped.end[0].nic.rx_no_buffer) = (19, 4);
        assert!(!last_line(&dropped, &[]).contains("FAIL"), "a receive ring is one, too");
    }

    #[test]
    fn a_buffer_that_leaks_is_missing() {
        let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).unwrap();
        let pool = Pool::new(PoolParams::default(), arena).unwrap().bind();
        let home = pool.handle();
        std::mem::forget(pool.alloc_page().unwrap());
        drop(pool);
        let lost = "no packet of 10 was lost";
        assert_eq!(last_line(&well(), &[home]), format!("FAIL: 1 buffers were not returned; {lost}"));
    }

    #[test]
    fn a_verdict_names_who_has_what_is_missing() {
        let arena = Arena::new(ArenaParams { max_bytes: 1 << 20, ..Default::default() }).unwrap();
        let holders = Holders::Sites { stacks: None };
        let params = PoolParams { name: "rx3".into(), holders, ..Default::default() };
        let pool = Pool::new(params, arena).unwrap().bind();
        pool.set_tag(Some(pool.tag("reorder")));
        let home = pool.handle();
        std::mem::forget(pool.alloc_page().unwrap());
        drop(pool);
        let verdict = well().verdict(std::slice::from_ref(&home), LossLimit::default());
        let text = verdict.to_string();
        assert!(text.contains("of pool rx3:\n") && text.contains("FAIL: 1 buffers were not"), "{text}");
        let group = text.lines().find(|line| line.contains(" reorder ")).unwrap();
        assert!(group.contains("outcome.rs:"), "{text}");
        let json = serde_json::to_value(&verdict).unwrap();
        assert_eq!(json["holders"][0]["pool"], "rx3");
        assert_eq!(json["holders"][0]["holders"]["groups"][0]["tag"], "reorder");
    }
}
