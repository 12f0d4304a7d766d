//! The memory and descriptors of this process, from /proc.

use std::fs;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Holdings {
    pub rss_kib: u64,
    /// Resident KiB without file mappings: code becomes resident when it first runs.
    pub own_kib: u64,
    pub descriptors: u64,
}

impl Holdings {
    pub fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let descriptors = fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
        Self::of(&status, descriptors)
    }

    fn of(status: &str, descriptors: u64) -> Self {
        let kib = |field: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
            line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
        };
        Self { rss_kib: kib("VmRSS"), own_kib: kib("RssAnon") + kib("RssShmem"), descriptors }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_what_is_present() {
        let status =
            "VmPeak:\t 9 kB\nVmRSS:\t   60 kB\nRssAnon:\t 40 kB\nRssFile:\t 17 kB\nRssShmem:\t 3 kB\n";
        assert_eq!(Holdings::of(status, 5), Holdings { rss_kib: 60, own_kib: 43, descriptors: 5 });
        let now = Holdings::now();
        assert!(now.rss_kib >= now.own_kib && now.own_kib > 0 && now.descriptors >= 3, "{now:?}");
    }
}
