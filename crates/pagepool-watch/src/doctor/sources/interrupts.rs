//! `/proc/interrupts`, and the CPUs of interrupts.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::doctor::evidence::InterruptEvidence;
use crate::kernel_list::numbers;

/// Name and count of each interrupt, by number.
#[derive(Debug, Default, PartialEq)]
pub struct Interrupts(HashMap<u32, (String, u64)>);

impl Interrupts {
    /// Empty if `/proc` hides them.
    pub fn look(root: &Path) -> Self {
        let text = fs::read_to_string(root.join("proc/interrupts")).unwrap_or_default();
        Self(text.lines().skip(1).filter_map(line).collect())
    }

    pub fn since(mut self, earlier: &Self) -> Self {
        for (number, (_, count)) in &mut self.0 {
            let before = earlier.0.get(number).map_or(*count, |(_, before)| *before);
            *count = count.saturating_sub(before);
        }
        self
    }

    /// Those with these numbers, sorted.
    pub fn evidence(&self, root: &Path, mut of: Vec<u32>) -> Vec<InterruptEvidence> {
        of.sort_unstable();
        let one = |number: u32| {
            let (name, moved) = self.0.get(&number)?.clone();
            Some(InterruptEvidence { number, name, cpus: cpus(root, number), moved })
        };
        of.into_iter().filter_map(one).collect()
    }
}

/// The effective CPUs of an interrupt, if the kernel reports them, else the allowed ones.
fn cpus(root: &Path, number: u32) -> Vec<usize> {
    let read = |name| fs::read_to_string(root.join(format!("proc/irq/{number}/{name}"))).ok();
    let list = read("effective_affinity_list").filter(|list| !list.trim().is_empty());
    list.or_else(|| read("smp_affinity_list")).map(|list| numbers(&list)).unwrap_or_default()
}

/// The number of an interrupt, its name, and its count on all CPUs.
fn line(text: &str) -> Option<(u32, (String, u64))> {
    let (number, rest) = text.split_once(':')?;
    let number = number.trim().parse().ok()?;
    let is_count = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    let count = rest.split_whitespace().take_while(is_count).filter_map(|word| word.parse::<u64>().ok());
    let name = rest.split_whitespace().last().filter(|word| !is_count(word))?;
    Some((number, (name.to_owned(), count.fold(0, u64::saturating_add))))
}

#[cfg(test)]
mod tests {
    use pagepool_lab::TempFolder;

    use super::*;

    const FIRST: &str = "CPU0       CPU1\n 39:      27558          4 PCI-MSIX-0000:00:03.0   2-edge      \
                         virtio2-output.0\n 40:          1          0  IO-APIC   5-edge      \
                         ACPI:Ged\nNMI:          0 0   Non-maskable interrupts\nERR:          0\n";

    #[test]
    fn interrupts_are_read_with_where_they_go() {
        let folder = TempFolder::new("pagepool-irq").unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("proc/irq/39")).unwrap();
        fs::write(root.join("proc/interrupts"), FIRST).unwrap();
        fs::write(root.join("proc/irq/39/smp_affinity_list"), "0-1\n").unwrap();
        let first = Interrupts::look(root);
        fs::write(root.join("proc/interrupts"), FIRST.replace(" 4 ", " 1004 ")).unwrap();
        let moved = Interrupts::look(root).since(&first);
        let [of] = &*moved.evidence(root, vec![39, 77]) else { panic!("{moved:?}") };
        assert_eq!((of.number, &*of.name, &*of.cpus, of.moved), (39, "virtio2-output.0", &[0, 1][..], 1000));
        fs::write(root.join("proc/irq/39/effective_affinity_list"), "1\n").unwrap();
        assert_eq!(moved.evidence(root, vec![39])[0].cpus, [1]);
        assert_eq!(Interrupts::look(Path::new("/nonexistent")), Interrupts::default());
    }
}
