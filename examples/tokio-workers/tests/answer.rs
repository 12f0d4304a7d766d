//! Both programs answer.

use std::path::Path;

/// How many packets to port 9 the program answered. `None` if it cannot run here.
fn ask(program: &str) -> Option<usize> {
    match lab::echo::ask(Path::new(program), &[]) {
        Ok(others) => Some(others),
        Err(error) if error.is::<lab::Skip>() => {
            println!("SKIP {program}: {error}");
            None
        }
        Err(error) => panic!("{program}: {error}"),
    }
}

#[test]
fn tasks_answer_packets_from_a_polling_thread() {
    ask(env!("CARGO_BIN_EXE_pagepool-tokio-workers"));
}

#[test]
fn a_forwarder_in_a_task_answers() {
    assert_eq!(ask(env!("CARGO_BIN_EXE_one-thread")).unwrap_or(0), 0, "port 9 belongs to the kernel");
}
