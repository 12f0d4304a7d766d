//! The layers of each crate: its top-level files and folders, lowest first. What is lower imports nothing that
//! is higher. A folder may have layers of its own, before the folder itself.

/// The layers of the crates.
pub const LAYERS: &[(&str, &[&str])] = &[
    (
        "pagepool",
        &[
            "shown",
            "remedy",
            "error",
            "probes",
            "sys",
            "mem",
            "stats",
            "recycle",
            "holders",
            "core",
            "returns",
            "buf",
            "pool",
            "packet",
            "publication",
            "published",
            "internal",
        ],
    ),
    (
        "pagepool-bench",
        &[
            "sys",
            "measure",
            "rivals",
            "workloads",
            "outcome",
            "peers",
            "plot",
            "reports",
            "count",
            "run",
            "options",
        ],
    ),
    ("pagepool-capi", &["counters", "c_words", "error", "caller", "oom", "handles", "args", "inline", "api"]),
    (
        "pagepool-cli",
        &[
            "sys",
            "file_name",
            "command",
            "left_out",
            "report",
            "signals",
            "program",
            "observing",
            "top",
            "traffic/port_sample",
            "traffic/shared_state",
            "traffic/watch",
            "traffic/poll_loop",
            "traffic/figures",
            "traffic/publish_options",
            "traffic/options",
            "traffic/sockets",
            "traffic/capture",
            "traffic/command",
            "traffic/run",
            "traffic",
            "demo",
            "commands",
        ],
    ),
    ("pagepool-header", &["version_script", "abi_list", "header"]),
    ("pagepool-house", &["tokens", "source", "imports", "layers"]),
    (
        "pagepool-lab",
        &[
            "sys",
            "huge_pages",
            "skip",
            "tool",
            "pin",
            "temp_folder",
            "switch",
            "link_settings",
            "drop_rule",
            "frame_socket",
            "live_frames",
            "frame_generator",
            "guest",
        ],
    ),
    (
        "pagepool-link",
        &[
            "sys",
            "shell_word",
            "error",
            "message",
            "exchange",
            "link_info",
            "route",
            "qdisc",
            "netlink",
            "tap",
            "ethtool",
            "netdev",
            "egress",
            "caution",
            "promiscuous",
            "flow",
            "offload",
            "namespace",
            "tcp",
            "two_hosts",
            "testing",
        ],
    ),
    ("pagepool-package", &["settings", "tool", "install", "package"]),
    (
        "pagepool-soak",
        &[
            "sys",
            "schedule",
            "counts",
            "arrivals",
            "flow",
            "holdings",
            "peer",
            "peer_process",
            "live",
            "fault_injector",
            "outcome",
            "run",
            "options",
        ],
    ),
    (
        "pagepool-net",
        &[
            "error",
            "sys",
            "bpf_run",
            "numbered",
            "interface",
            "steering",
            "device",
            "forward",
            "mem_nic",
            "virtio",
            "vhost",
            "xsk",
            "kernel_stack",
            "tap",
            "zerocopy",
            "drivers",
            "testing",
        ],
    ),
    (
        "pagepool-skb",
        &[
            "error",
            "frag",
            "frags",
            "head_memory",
            "block",
            "cache",
            "block_ref",
            "sk_buff",
            "head",
            "pull",
            "split",
            "coalesce",
            "read",
            "bytes",
        ],
    ),
    (
        "pagepool-testing",
        &[
            "seed",
            "system_page",
            "plain",
            "fail_nth",
            "conformance",
            "iommu",
            "devices",
            "op",
            "model",
            "run",
        ],
    ),
    (
        "pagepool-watch",
        &[
            "words",
            "kernel_list",
            "late_thread",
            "published",
            "metrics",
            "observation",
            "pool_moved",
            "kernel_look",
            "doctor",
        ],
    ),
];

/// Files that import each other in a circle, and why.
pub const CIRCLES: &[(&str, &[&str], &str)] = &[(
    "pagepool-cli",
    &["commands", "commands/completions", "commands/man"],
    "the manual and the completions describe every command",
)];

/// The layers of a crate.
pub fn layers_of(krate: &str) -> &'static [&'static str] {
    let layers = LAYERS.iter().find(|(name, _)| *name == krate);
    layers.unwrap_or_else(|| panic!("workshop/house/src/layers.rs has no layers of {krate}")).1
}

/// The layer of a file: a file or folder in a folder that has layers, or at the top level.
pub fn layer<'a>(krate: &str, path: &'a str) -> &'a str {
    let end = |nth: usize| path.match_indices('/').nth(nth).map_or(path.len(), |(at, _)| at);
    let (top, inner) = (&path[..end(0)], &path[..end(1)]);
    let is_in_top = |layer: &&str| layer.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'));
    if layers_of(krate).iter().any(is_in_top) { inner } else { top }
}

/// The place of a file's layer; the root of a crate stands above all.
pub fn place(krate: &str, path: &str) -> usize {
    layers_of(krate).iter().position(|known| *known == layer(krate, path)).unwrap_or(usize::MAX)
}
