//! Every example of this crate runs to its end; each checks what it shows. The tests of
//! `pagepool-house` require a line here for each.

#[path = "../examples/custom_provider.rs"]
mod custom_provider;
#[path = "../examples/handover.rs"]
mod handover;
#[path = "../examples/split.rs"]
mod split;

#[test]
fn handover_returns_every_page() {
    handover::main().expect("it runs");
}

#[test]
fn a_buffer_is_split_and_its_parts_return() {
    split::main().expect("it runs");
}

#[test]
fn a_custom_provider_serves_a_pool() {
    custom_provider::main().expect("it runs");
}
