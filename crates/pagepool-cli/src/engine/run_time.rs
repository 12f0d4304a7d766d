//! How long a run takes.

/// A day.
const MOST_SECONDS: u64 = 86_400;

pub fn seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=MOST_SECONDS).contains(seconds));
    seconds.ok_or_else(|| format!("the run time is 1 to {MOST_SECONDS} whole seconds; Ctrl-C stops earlier"))
}
