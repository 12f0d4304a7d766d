//! Every example that shows the library runs to its end; each checks what it shows. `veth-rates` and
//! `xsk-rates` are tools for measuring, and are not run here.

#[path = "../examples/jumbo.rs"]
mod jumbo;
#[path = "../examples/receive_af_xdp.rs"]
mod receive_af_xdp;
#[path = "../examples/receive_loop.rs"]
mod receive_loop;

#[test]
fn receive_loop_uses_pages_again() {
    receive_loop::main().expect("it runs");
}

#[test]
fn receive_af_xdp_runs_or_says_why_not() {
    receive_af_xdp::main().expect("it runs");
}

#[test]
fn jumbo_arrives_whole() {
    jumbo::main().expect("it runs");
}

/// An example that no test runs is one that goes stale.
#[test]
fn each_example_is_run_here() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    for file in std::fs::read_dir(folder).expect("the folder is there") {
        let name = file.expect("it can be read").file_name().into_string().expect("an ASCII name");
        let module = format!("mod {};", name.trim_end_matches(".rs"));
        let run = include_str!("examples.rs").contains(&module) || name.contains("-rates");
        assert!(run, "{name} is not run by tests/examples.rs");
    }
}
