//! A run with a time limit begins at the guest that the last run did not finish. Two runs in a row reach
//! every case, if each gets through half of the list. The note is in the cache; without one, the caller says
//! where to begin.

use std::path::PathBuf;

use crate::guest::case::{CaseGuest, CaseResult};
use crate::guest::case_list::CASE_GUESTS;
use crate::guest::error::GuestError;
use crate::guest::host_tools::HostTools;

/// The note of where the next run begins.
#[derive(Clone, Debug)]
pub struct CaseTurn {
    note: PathBuf,
}

impl CaseTurn {
    /// The note in the cache of these tools.
    pub fn of(tools: &HostTools) -> Self {
        Self { note: tools.cache.join("cases-begin") }
    }

    /// All guests, from the noted one on and around; without a note, from `otherwise` on.
    pub fn guests(&self, otherwise: &str) -> Vec<CaseGuest> {
        let at = |name: &str| CASE_GUESTS.iter().position(|guest| guest.name == name);
        let noted = std::fs::read_to_string(&self.note).unwrap_or_default();
        let first = at(noted.trim()).or_else(|| at(otherwise)).unwrap_or(0);
        let (before, after) = CASE_GUESTS.split_at(first);
        [after, before].concat()
    }

    /// Notes the first guest that a run did not finish, or none.
    ///
    /// # Errors
    ///
    /// The cache cannot be written.
    pub fn note(&self, results: &[CaseResult]) -> Result<(), GuestError> {
        let left = results.iter().find(|result| result.had_no_time()).map_or("", |result| result.case.guest);
        let failed = |error| GuestError::Failed(format!("{}: {error}", self.note.display()));
        let folder = self.note.parent().map_or(Ok(()), std::fs::create_dir_all);
        folder.and_then(|()| std::fs::write(&self.note, left)).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::case::{Case, NO_TIME, Verdict};
    use crate::temp_folder::TempFolder;

    fn result(guest: &'static str, verdict: Verdict) -> CaseResult {
        let case = Case::new(guest, "c", "");
        CaseResult { case, verdict, kernel: String::new(), output: String::new(), seconds: 1 }
    }

    #[test]
    fn a_run_begins_where_the_last_one_had_no_time_left() {
        let folder = TempFolder::new("guest-turn").expect("a new folder");
        let turn = CaseTurn { note: folder.path().join("new/cases-begin") };
        let order = |otherwise| turn.guests(otherwise).iter().map(|guest| guest.name).collect::<Vec<_>>();
        let all: Vec<_> = CASE_GUESTS.iter().map(|guest| guest.name).collect();
        assert_eq!(order(""), all);
        assert_eq!(order("6.1"), [&all[1..], &all[..1]].concat(), "there is no note");
        let no_time = || Verdict::Skipped(NO_TIME.into());
        let other = result("6.1", Verdict::Skipped("no kernel".into()));
        let results =
            [result("5.10", Verdict::Ok), other, result("igb", no_time()), result("6.12", no_time())];
        turn.note(&results).expect("a folder");
        assert_eq!(order("6.1"), [&all[9..], &all[..9]].concat(), "igb is the last of the list");
        turn.note(&results[..2]).expect("a folder");
        assert_eq!(order("6.1")[0], "6.1", "nothing was left");
    }
}
