//! `pagepool top` on a terminal of its own, whose screen a terminal emulator gives as text: what it shows of
//! commands that run and that were killed, what keys do, and that the terminal is afterwards what it was.

use crate::picture;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZero;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::between::{LIMIT, binary, text};
use crate::doctor::ill;
use pagepool_lab::TempFolder;
use roxmltree::Document;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// What a terminal shows, and all that came.
struct Shown {
    emulator: vt100::Parser,
    bytes: Vec<u8>,
}

/// A terminal, and the program on it, which is its session's leader.
struct Pty {
    master: Option<File>,
    slave: PathBuf,
    shown: Arc<Mutex<Shown>>,
    reader: Option<PtyReader>,
    child: Child,
    /// Modes before the program ran.
    modes: String,
}

/// What reads all that comes, until it is dropped.
struct PtyReader {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PtyReader {
    fn start(mut master: File, shown: Arc<Mutex<Shown>>) -> Self {
        let over = Arc::<AtomicBool>::default();
        let is_over = over.clone();
        let thread = std::thread::spawn(move || {
            let (mut bytes, nap) = ([0; 4096], Timespec { tv_sec: 0, tv_nsec: 20_000_000 });
            while !is_over.load(Ordering::Relaxed) {
                if poll(&mut [PollFd::new(&master, PollFlags::IN)], Some(&nap)) == Ok(0) {
                    continue;
                }
                let Ok(length @ 1..) = master.read(&mut bytes) else { return };
                let mut shown = shown.lock().expect("no test panics there");
                shown.emulator.process(&bytes[..length]);
                shown.bytes.extend(&bytes[..length]);
            }
        });
        Self { over, thread: Some(thread) }
    }
}

impl Drop for PtyReader {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

impl Pty {
    /// Runs a program on a new terminal of this size. `None` after a line that says why not.
    fn run(test: &str, folder: &TempFolder, program: &[&str], columns: u16, rows: u16) -> Option<Self> {
        if Command::new("setsid").arg("--version").output().is_err() {
            println!("SKIP {test}: this machine has no `setsid` (util-linux)");
            return None;
        }
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = File::from(openpt(flags).expect("a terminal"));
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("it is ours");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let slave = PathBuf::from(name.to_str().expect("of ASCII"));
        stty(&slave, &["cols", &columns.to_string(), "rows", &rows.to_string()]);
        let modes = stty(&slave, &["-g"]);
        let mut command = Command::new("setsid");
        command.arg("-c").args(program).env("PAGEPOOL_RUN", folder.path()).env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        let end = || OpenOptions::new().read(true).write(true).open(&slave).expect("a terminal");
        let child = command.stdin(end()).stdout(end()).stderr(end()).spawn().expect("setsid");
        let emulator = vt100::Parser::new(non_zero(rows), non_zero(columns), 0);
        let shown = Arc::new(Mutex::new(Shown { emulator, bytes: Vec::new() }));
        let reader = PtyReader::start(master.try_clone().expect("a descriptor"), shown.clone());
        Some(Self { master: Some(master), slave, shown, reader: Some(reader), child, modes })
    }

    /// `pagepool top` with these arguments.
    fn top(test: &str, folder: &TempFolder, more: &[&str]) -> Option<Self> {
        let top = [&[env!("CARGO_BIN_EXE_pagepool"), "top"], more].concat();
        Self::run(test, folder, &top, 80, 24)
    }

    fn screen(&self) -> String {
        self.shown.lock().expect("no test panics there").emulator.screen().contents()
    }

    fn wait_for(&self, what: &str, is_there: impl Fn(&str) -> bool) -> String {
        let start = Instant::now();
        loop {
            let screen = self.screen();
            if is_there(&screen) {
                return screen;
            }
            assert!(start.elapsed() < LIMIT, "{what}:\n{screen}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn wait_for_text(&self, text: &str) -> String {
        self.wait_for(text, |screen| screen.contains(text))
    }

    /// Waits until something more is drawn.
    fn wait_for_more(&self) {
        let drawn = || self.shown.lock().expect("no test panics there").bytes.len();
        let before = drawn();
        self.wait_for("more is drawn", |_| drawn() > before);
    }

    fn type_keys(&mut self, keys: &str) {
        let master = self.master.as_mut().expect("it is open");
        master.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    fn resize(&self, columns: u16, rows: u16) {
        self.shown
            .lock()
            .expect("no test panics there")
            .emulator
            .screen_mut()
            .set_size(non_zero(rows), non_zero(columns));
        stty(&self.slave, &["cols", &columns.to_string(), "rows", &rows.to_string()]);
    }

    /// Closes the terminal.
    fn close(&mut self) {
        self.reader = None;
        self.master = None;
    }

    /// Whether nothing more can be written to the terminal: nobody reads what was.
    fn has_full_terminal(&self) -> bool {
        let end = OpenOptions::new().write(true).open(&self.slave).expect("a terminal");
        poll(&mut [PollFd::new(&end, PollFlags::OUT)], Some(&Timespec::default())) == Ok(0)
    }

    /// Waits until a shell has the terminal again and asks for a command: what is typed before may be lost
    /// with a change of modes.
    fn wait_for_prompt(&self, what: &str) {
        self.wait_for(what, |screen| self.is_put_back() && screen.trim_end().ends_with("ready>"));
    }

    fn signal(&self, signal: &str) {
        kill(signal, self.child.id());
    }

    fn ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of this process") {
                return status;
            }
            assert!(start.elapsed() < LIMIT, "it goes on:\n{}", self.screen());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What the program changed is as it was, and it ended well.
    fn assert_put_back(&mut self, how: &str) {
        let status = self.ended();
        assert_eq!(status.code(), Some(0), "{how}: {status}\n{}", self.screen());
        self.wait_for(how, |_| self.is_put_back());
        assert_eq!(stty(&self.slave, &["-g"]), self.modes, "{how}");
    }

    /// No alternate screen, and the cursor is there.
    fn is_put_back(&self) -> bool {
        let shown = self.shown.lock().expect("no test panics there");
        let screen = shown.emulator.screen();
        !screen.alternate_screen() && !screen.hide_cursor()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn non_zero(length: u16) -> NonZero<u16> {
    NonZero::new(length).expect("a terminal has columns and rows")
}

fn kill(signal: &str, process: u32) {
    let status = Command::new("kill").args([signal, &process.to_string()]).status();
    assert!(status.expect("a shell's kill").success());
}

fn stty(terminal: &PathBuf, arguments: &[&str]) -> String {
    let terminal = File::open(terminal).expect("the terminal");
    let output = Command::new("stty").args(arguments).stdin(terminal).output().expect("stty");
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).to_owned()
}

fn run_folder() -> TempFolder {
    TempFolder::new("pagepool-top").expect("a new folder")
}

/// A demonstration that publishes, which is killed when this is dropped.
struct Demo(Child);

impl Demo {
    fn start(folder: &TempFolder) -> Self {
        let mut command = binary(&["demo", "--on", "memory", "--seconds", "600", "--publish=sites"]);
        command.env("PAGEPOOL_RUN", folder.path()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("the binary was built for this test"))
    }
}

impl Demo {
    /// One that has forwarded for some looks of a reader.
    fn start_and_wait(folder: &TempFolder) -> Self {
        let demo = Self::start(folder);
        let id = demo.0.id().to_string();
        let start = Instant::now();
        let runs = || {
            let mut list = binary(&["list"]);
            let output = list.env("PAGEPOOL_RUN", folder.path()).output().expect("the binary");
            let age = text(&output.stdout).split_once(&format!("pid {id}: runs for ")).map(|(_, age)| age);
            age.is_some_and(|age| !age.starts_with("0 s"))
        };
        while !runs() {
            assert!(start.elapsed() < LIMIT, "the demonstration publishes");
            std::thread::sleep(Duration::from_millis(50));
        }
        demo
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A text of the screen as it is where the kernel names no page pool: its parts have two spaces between them.
fn without_pools_of_kernel(text: &str) -> String {
    let parts: Vec<_> = text.split("  ").filter(|part| !part.ends_with(" of the kernel")).collect();
    parts.join("  ")
}

/// The row of a pool.
fn row<'a>(screen: &'a str, pool: &str) -> &'a str {
    screen.lines().find(|line| line.split_whitespace().any(|word| word == pool)).unwrap_or_default()
}

#[test]
fn without_a_terminal_it_says_what_there_is_instead() {
    let output = binary(&["top"]).output().expect("the binary was built for this test");
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), ""));
    let said = text(&output.stderr);
    for what in ["requires a terminal", "`pagepool list --watch`", "--json"] {
        assert!(said.contains(what), "{said}");
    }
}

#[test]
fn pools_are_shown_sorted_filtered_and_explained() {
    let name = "pools_are_shown_sorted_filtered_and_explained";
    let folder = run_folder();
    let Some(mut top) = Pty::top(name, &folder, &["-d", "0.2"]) else { return };
    top.wait_for_text("No process publishes in ");
    let demo = Demo::start(&folder);
    let screen = top.wait_for("rates", |screen| {
        let cells: Vec<_> = row(screen, "nic0").split_whitespace().collect();
        cells.len() > 8 && !matches!(cells[3], "-" | "0")
    });
    let id = demo.0.id().to_string();
    assert!(row(&screen, "nic0").contains(&id) && row(&screen, "nic1").contains(" demo "), "{screen}");
    let head = without_pools_of_kernel(screen.lines().next().unwrap_or_default());
    assert_eq!(head.trim_end(), "pagepool top  1 process  2 pools  every 0.2 s  by PROCESS");
    let screen = top.wait_for_text("w waiting ");
    assert!(screen.contains("alloc ") && screen.contains("r ring "), "{screen}");
    assert!(screen.lines().all(|line| line.chars().count() <= 80), "{screen}");

    top.type_keys("M");
    top.wait_for_text("by MEM");
    top.type_keys("\x1bOS"); // F4
    top.wait_for_text("Filter (");
    top.type_keys("nic1\r");
    top.wait_for("only nic1", |screen| screen.contains("only nic1") && row(screen, "nic0").is_empty());
    top.type_keys("\x1b");
    top.wait_for("both", |screen| !row(screen, "nic0").is_empty());
    top.type_keys("Z");
    top.wait_for_text("PAUSED");
    top.type_keys("Z+h");
    top.wait_for_text("Columns, with the key that sorts by each");
    top.type_keys("\x1b");
    top.wait_for_text("every 0.5 s");

    top.type_keys("/nic0\r\r");
    let detail = top.wait_for_text("Where its 2,560 pages of 2,048 bytes are (5.00M)");
    assert!(detail.contains("pool nic0 (id 1): bound to thread forward"), "{detail}");
    assert!(detail.contains("allocated/s") && detail.contains("most "), "{detail}");
    top.wait_for("bars of history", |screen| screen.contains('█'));
    top.type_keys("\x1b[6~");
    let counters = top.wait_for_text("recycle_cached ");
    assert!(counters.contains("the owner returned to the cache"), "{counters}");
    top.type_keys("\x1b[F");
    top.wait_for_text("rx_packets");
    for (columns, rows) in [(30, 8), (8, 3), (1, 1), (80, 24)] {
        top.resize(columns, rows);
        top.wait_for_more();
    }
    top.type_keys("\x1b[F"); // the list above may have grown since
    top.wait_for_text("rx_packets");
    top.type_keys("q");
    top.wait_for_text("by MEM");
    top.type_keys("q");
    top.assert_put_back("q");
}

#[test]
fn a_stack_is_among_the_details_of_a_pool() {
    let folder = run_folder();
    let _program = ill("refusing_stack", folder.path());
    let Some(mut top) = Pty::top("a_stack_is_among_the_details_of_a_pool", &folder, &["-d", "0.2"]) else {
        return;
    };
    top.wait_for_text(" refusing");
    top.type_keys("/refusing\r\r");
    top.wait_for_text("Where its ");
    top.type_keys("\x1b[F");
    top.wait_for("the stack's counters", |screen| {
        let last = screen.lines().skip_while(|line| line.trim_end() != "stack eth7").collect::<Vec<_>>();
        ["passed ", "refused "].iter().all(|name| last.iter().any(|line| line.starts_with(name)))
    });
}

#[test]
fn it_follows_the_size_of_its_terminal() {
    let folder = run_folder();
    let Some(mut top) = Pty::top("it_follows_the_size_of_its_terminal", &folder, &["-d", "0.2"]) else {
        return;
    };
    let _demo = Demo::start(&folder);
    top.wait_for_text(" nic0 ");
    assert!(!top.screen().contains("THREAD"));
    top.resize(120, 40);
    let is_wide = |screen: &str| ["THREAD", "RETN/s"].iter().all(|head| screen.contains(head));
    top.wait_for("a wide table", |screen| is_wide(screen) && screen.lines().count() == 40);
    for (columns, rows) in [(40, 10), (20, 5), (8, 3), (1, 1)] {
        top.resize(columns, rows);
        top.wait_for_more();
    }
    // More than anybody has, and more cells than there is memory for.
    for (columns, rows) in [("40000", "40000"), ("65535", "65535"), ("65535", "1")] {
        stty(&top.slave, &["cols", columns, "rows", rows]);
        top.wait_for_more();
    }
    top.resize(80, 24);
    top.wait_for("as before", |screen| screen.contains(" nic0 ") && !screen.contains("THREAD"));
    top.type_keys("\x03");
    top.assert_put_back("Ctrl-C");
}

#[test]
fn a_process_that_is_killed_stays_and_says_what_it_held() {
    let name = "a_process_that_is_killed_stays_and_says_what_it_held";
    let folder = run_folder();
    let demo = Demo::start(&folder);
    let Some(mut top) = Pty::top(name, &folder, &["-d", "0.2"]) else { return };
    top.wait_for("what devices have", |screen| row(screen, "nic1").contains("ww"));
    drop(demo);
    let screen = top.wait_for_text("1 DEAD");
    let held = row(&screen, "nic0");
    assert!(held.contains(" DEAD ") && row(&screen, "nic1").contains("ww"), "{screen}");
    top.type_keys("\r");
    top.wait_for_text("DEAD, last seen alive ");
    let mut clean = binary(&["clean"]);
    assert!(clean.env("PAGEPOOL_RUN", folder.path()).output().expect("the binary").status.success());
    let last = top.wait_for_text("ENDED: these are its last figures.");
    assert!(last.contains("Where its") || last.contains("Counters"), "{last}");
    top.type_keys("qq");
    top.assert_put_back("q");
}

#[test]
fn signals_end_it_and_the_terminal_is_what_it_was() {
    let folder = run_folder();
    for signal in ["-TERM", "-INT", "-HUP", "-QUIT"] {
        let test = "signals_end_it_and_the_terminal_is_what_it_was";
        let Some(mut top) = Pty::top(test, &folder, &["-d", "60"]) else { return };
        top.wait_for_text("No process publishes in ");
        assert!(!top.is_put_back() && stty(&top.slave, &["-g"]) != top.modes, "it has its own modes");
        top.signal(signal);
        if signal == "-TERM" {
            top.signal(signal); // a second one may come at once
        }
        top.assert_put_back(signal);
    }
}

#[test]
fn signals_end_it_though_its_terminal_takes_nothing() {
    let folder = run_folder();
    for signal in ["-TERM", "-HUP"] {
        let test = "signals_end_it_though_its_terminal_takes_nothing";
        let Some(mut top) = Pty::top(test, &folder, &["-d", "0.1"]) else { return };
        top.wait_for_text("No process publishes in ");
        top.reader = None;
        top.type_keys(&"\x0c".repeat(100)); // keys of one read draw all anew, once
        let start = Instant::now();
        while !top.has_full_terminal() {
            assert!(start.elapsed() < LIMIT, "the terminal takes all");
            top.type_keys("\x0c");
            std::thread::sleep(Duration::from_millis(20));
        }
        top.signal(signal);
        let status = top.ended();
        assert_eq!(
            (status.code(), stty(&top.slave, &["-g"])),
            (Some(0), top.modes.clone()),
            "{signal}: {status}"
        );
    }
}

#[test]
fn it_ends_when_its_terminal_is_closed() {
    let folder = run_folder();
    let ignoring = format!("trap '' HUP; exec {} top -d 60", env!("CARGO_BIN_EXE_pagepool"));
    let plain = [env!("CARGO_BIN_EXE_pagepool"), "top", "-d", "60"];
    for program in [&plain[..], &["sh", "-c", &ignoring]] {
        let test = "it_ends_when_its_terminal_is_closed";
        let Some(mut top) = Pty::run(test, &folder, program, 80, 24) else { return };
        top.wait_for_text("No process publishes in ");
        top.close();
        top.ended();
    }
}

#[test]
fn it_stops_like_any_other_program_and_goes_on() {
    let name = "it_stops_like_any_other_program_and_goes_on";
    let folder = run_folder();
    if Command::new("bash").arg("--version").output().is_err() {
        return println!("SKIP {name}: this machine has no bash");
    }
    let shell = ["env", "PS1=ready> ", "bash", "--norc", "--noprofile", "--noediting", "-i"];
    let Some(mut top) = Pty::run(name, &folder, &shell, 80, 24) else { return };
    top.wait_for_prompt("the start");
    top.type_keys(&format!("{} top -d 0.2\r", env!("CARGO_BIN_EXE_pagepool")));
    for stop in ["\x1a", "kill"] {
        top.wait_for("the screen", |screen| screen.contains("No process publishes") && !top.is_put_back());
        match stop {
            "kill" => kill("-TSTP", foreground(top.child.id())),
            keys => top.type_keys(keys),
        }
        top.wait_for_text("Stopped");
        top.wait_for_prompt(stop);
        let modes = stty(&top.slave, &["-a"]);
        assert!(modes.contains(" icanon") && modes.contains(" echo "), "{stop}: {modes}");
        top.type_keys("clear; fg\r");
    }
    top.wait_for("again", |screen| screen.contains("No process publishes") && !top.is_put_back());
    top.type_keys("q");
    top.wait_for_prompt("q");
    top.type_keys("exit\r");
    top.ended();
}

/// The child of a shell.
fn foreground(shell: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{shell}/task/{shell}/children")).expect("/proc");
    children.split_whitespace().next().and_then(|id| id.parse().ok()).expect("it has one")
}

#[test]
fn colours_only_help() {
    let folder = run_folder();
    for (no_color, has_colours) in [("NO_COLOR=", true), ("NO_COLOR=1", false)] {
        let top = ["env", no_color, env!("CARGO_BIN_EXE_pagepool"), "top"];
        let Some(mut top) = Pty::run("colours_only_help", &folder, &top, 80, 24) else { return };
        top.wait_for_text("No process publishes in ");
        top.type_keys("q");
        top.assert_put_back("q");
        let shown = top.shown.lock().expect("no test panics there");
        let bytes = String::from_utf8_lossy(&shown.bytes);
        assert_eq!(bytes.matches("\x1b[?1049l").count(), 1, "the alternate screen is left once: {bytes:?}");
        let is_coloured = bytes.contains("\x1b[38;5;") || (30..38).any(|n| bytes.contains(&format!("[{n}m")));
        assert_eq!(is_coloured, has_colours, "{no_color}: {bytes:?}");
    }
}

/// The picture of README.md: a real screen. PAGEPOOL_BLESS=1 draws it anew.
#[test]
fn the_picture_of_the_documents_is_a_screen_of_this_command() {
    let name = "the_picture_of_the_documents_is_a_screen_of_this_command";
    let (folder, columns, rows) = (run_folder(), 90, 15);
    drop(Demo::start_and_wait(&folder)); // it is killed, and shown as dead
    let _demo = Demo::start_and_wait(&folder);
    let top = [env!("CARGO_BIN_EXE_pagepool"), "top", "-d", "0.5"];
    let Some(mut top) = Pty::run(name, &folder, &top, columns, rows) else { return };
    top.type_keys("K"); // those of the kernel differ from machine to machine
    top.wait_for("rates", |screen| {
        screen.contains("1 DEAD")
            && screen.lines().any(|line| line.contains("nic0") && line.contains("100.00"))
    });
    let drawn = {
        let shown = top.shown.lock().expect("no test panics there");
        picture::svg(
            shown.emulator.screen(),
            "pagepool top: a demonstration that runs, and one that was killed",
        )
    };
    top.type_keys("q");
    top.assert_put_back("q");
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/plots/top.svg");
    if std::env::var_os("PAGEPOOL_BLESS").is_some() {
        std::fs::write(&file, &drawn).expect("the folder of pictures");
    }
    let kept = std::fs::read_to_string(&file).expect("the picture");
    assert_eq!(fixed_words(&kept), fixed_words(&drawn), "to draw it anew: PAGEPOOL_BLESS=1, with this test");
}

/// What a picture says, without what differs from run to run: the words of heads and keys, sorted. The rows
/// stand in the order of PIDs, which begin anew at times.
fn fixed_words(svg: &str) -> Vec<String> {
    let document = Document::parse(svg).expect("a picture in SVG");
    let texts =
        document.descendants().filter(|node| node.has_tag_name("text")).filter_map(|node| node.text());
    let texts: Vec<_> = texts.map(without_pools_of_kernel).collect();
    let words = texts.iter().flat_map(|text| text.split_whitespace()).filter(|word| word.len() > 1);
    let is_fixed = |word: &&str| word.chars().all(|c| c.is_ascii_alphabetic() || "/%".contains(c));
    let is_bar = |word: &&str| word.chars().all(|c| "clrfdwo".contains(c));
    let mut words: Vec<_> = words.filter(is_fixed).filter(|word| !is_bar(word)).map(str::to_owned).collect();
    words.sort();
    words
}
