//! Every example that shows the library runs to its end; each checks what it shows. The test `house` of
//! `pagepool-cli` requires a line here for each.

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
