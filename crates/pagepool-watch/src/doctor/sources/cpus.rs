//! CPUs, nodes, frequency governors and huge pages, from `/sys`.

use std::fs;
use std::path::Path;

use crate::doctor::evidence::CpuEvidence;
use crate::kernel_list::numbers;

/// Nodes that have CPUs, and governors unless the hardware chooses the frequency.
pub fn cpus(root: &Path) -> CpuEvidence {
    let devices = root.join("sys/devices/system");
    let list =
        |path: &str| fs::read_to_string(devices.join(path)).map(|text| numbers(&text)).unwrap_or_default();
    let nodes =
        list("node/has_cpu").into_iter().map(|node| (node, list(&format!("node/node{node}/cpulist"))));
    let governor = |cpu: usize| {
        let of = devices.join(format!("cpu/cpu{cpu}/cpufreq"));
        let read = |name| Some(fs::read_to_string(of.join(name)).ok()?.trim().to_owned());
        let chooses = |driver: String| ["intel_pstate", "amd-pstate-epp"].contains(&&*driver);
        let is_hardware = read("scaling_driver").is_some_and(chooses);
        read("scaling_governor").filter(|_| !is_hardware).map(|governor| (cpu, governor))
    };
    CpuEvidence {
        nodes: nodes.collect(),
        governors: list("cpu/online").into_iter().filter_map(governor).collect(),
    }
}

/// The word in brackets.
pub fn transparent_huge_pages(root: &Path) -> Option<String> {
    let text =
        fs::read_to_string(root.join("sys/kernel/mm/transparent_hugepage/enabled")).unwrap_or_default();
    let chosen = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    chosen.map(|(word, _)| word.to_owned())
}

#[cfg(test)]
mod tests {
    use pagepool_lab::TempFolder;

    use super::*;

    #[test]
    fn a_machine_of_two_nodes_is_read() {
        let folder = TempFolder::new("pagepool-cpus").unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join("sys").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("devices/system/node/has_cpu", "0-1\n");
        write("devices/system/node/node0/cpulist", "0-1\n");
        write("devices/system/node/node1/cpulist", "2\n");
        write("devices/system/cpu/online", "0-2\n");
        write("devices/system/cpu/cpu2/cpufreq/scaling_governor", "powersave\n");
        write("devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n");
        write("devices/system/cpu/cpu1/cpufreq/scaling_driver", "intel_pstate\n");
        write("kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
        let there = cpus(folder.path());
        assert_eq!((there.node_of(1), there.node_of(2), there.node_of(3)), (Some(0), Some(1), None));
        assert_eq!((there.node_of_all(&[0, 1]), there.node_of_all(&[1, 2])), (Some(0), None));
        assert_eq!(there.governors, [(2, "powersave".to_owned())]);
        assert_eq!(transparent_huge_pages(folder.path()).as_deref(), Some("never"));
        assert_eq!(transparent_huge_pages(Path::new("/nonexistent")), None);
    }

    #[test]
    fn a_node_alone_is_none() {
        let alone = CpuEvidence { nodes: vec![(0, vec![0, 1])], ..Default::default() };
        assert_eq!((alone.node_of(0), alone.node_of_all(&[0, 1])), (None, None));
    }
}
