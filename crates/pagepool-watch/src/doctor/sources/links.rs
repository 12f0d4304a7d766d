//! The interfaces of this network namespace, as driver and kernel describe them.

use std::fs;
use std::path::{Path, PathBuf};

use pagepool_link::{
    Ethtool, LinkError, LinkInfo, Netlink, OffloadFault, OffloadSources, OperState, XdpFeatures, XdpMode,
};

use super::interrupts::Interrupts;
use crate::doctor::evidence::{LinkEvidence, LinkState, OffloadEvidence, ProcessEvidence, Unseen};
use crate::observation::Observation;
use crate::published::model::{EntryView, Life, param};
use crate::words::error_chain;

/// The netlink clients, and the interfaces with sockets of processes.
pub struct Links {
    clients: Option<(Netlink, Ethtool)>,
    /// With the mode of the XDP program, if one redirects.
    links: Vec<(LinkInfo, Option<XdpMode>)>,
    /// Packets that their cards had no room for, in this order.
    missed: Vec<u64>,
    /// Interfaces that no longer exist.
    gone: Vec<(u32, String)>,
}

impl Links {
    pub fn look(root: &Path, look: &Observation, unseen: &mut Unseen) -> Self {
        let here = look
            .processes
            .iter()
            .filter(|process| process.life == Life::Alive && is_here(process.pid_here) == Some(true));
        let sockets = here.flat_map(|process| &process.entries).filter(|entry| entry.kind == "socket");
        let sockets: Vec<_> = sockets.filter_map(on).collect();
        let mut this = Self { clients: None, links: Vec::new(), missed: Vec::new(), gone: Vec::new() };
        if sockets.is_empty() {
            return this;
        }
        let mut failed =
            |error: LinkError| unseen.not_judged.push(format!("interfaces: {}", error_chain(&error)));
        let open = || Ok::<_, LinkError>((Netlink::open()?, Ethtool::open()?));
        let Some(mut clients) = open().map_err(&mut failed).ok() else { return this };
        for (index, name, mode) in sockets {
            match this.links.iter_mut().find(|(link, _)| link.index == index) {
                Some((_, of)) => *of = of.or(mode),
                None if this.gone.iter().any(|(gone, _)| *gone == index) => {}
                None => match clients.0.link_at(index) {
                    Ok(Some(link)) => this.links.push((link, mode)),
                    Ok(None) => this.gone.push((index, name)),
                    Err(error) => failed(error),
                },
            }
        }
        this.missed = this.links.iter().map(|(link, _)| missed(root, link)).collect();
        Self { clients: Some(clients), ..this }
    }

    pub fn evidence(
        &mut self,
        root: &Path,
        interrupts: &Interrupts,
        unseen: &mut Unseen,
    ) -> Vec<LinkEvidence> {
        let gone = |(index, name): (u32, String)| {
            let state = LinkState::Gone;
            LinkEvidence { name, index, state, ..Default::default() }
        };
        let mut all: Vec<_> = std::mem::take(&mut self.gone).into_iter().map(gone).collect();
        let Self { clients: Some((netlink, ethtool)), links, missed: before, .. } = self else {
            return all;
        };
        for ((link, mode), before) in links.iter().zip(before) {
            let link = match netlink.link_at(link.index) {
                Ok(Some(link)) => link, // perhaps renamed
                Ok(None) => {
                    all.push(gone((link.index, link.name.clone())));
                    continue;
                }
                Err(error) => {
                    unseen.not_judged.push(format!("interface {}: {}", link.name, error_chain(&error)));
                    continue;
                }
            };
            unseen.not_judged.extend(without_card(root, &link));
            let dropped = missed(root, &link).saturating_sub(*before);
            let evidence = LinkEvidence { dropped, ..described(root, ethtool, &link, interrupts) };
            let mut offloads = Vec::new();
            if let Some(mode) = *mode {
                offloads = faults(netlink, ethtool, &link, mode, unseen);
            }
            all.push(LinkEvidence { offloads, ..evidence });
        }
        all
    }
}

fn state(link: &LinkInfo) -> LinkState {
    match link.state {
        _ if !link.is_up => LinkState::Down,
        OperState::Down | OperState::LowerLayerDown => LinkState::NoCarrier,
        _ if !link.has_carrier => LinkState::NoCarrier,
        _ => LinkState::Up,
    }
}

/// The interface of a socket, its name when opened, and the XDP mode if it receives.
fn on(socket: &EntryView) -> Option<(u32, String, Option<XdpMode>)> {
    let param = |name| param(&socket.params, name);
    let mode = param("attach").map(|attach| match attach {
        "generic" => XdpMode::Generic,
        _ => XdpMode::Native,
    });
    Some((param("ifindex")?.parse().ok()?, param("interface").unwrap_or("?").to_owned(), mode))
}

/// Marks processes in the network namespace of this thread.
pub fn mark_here(processes: &mut [ProcessEvidence]) {
    processes.iter_mut().for_each(|process| process.is_here = is_here(process.pid_here));
}

/// `None` if that may not be read, the process is gone, or it is in another pid namespace.
fn is_here(pid: Option<u32>) -> Option<bool> {
    let of = |path: String| fs::read_link(path).ok();
    Some(of("/proc/thread-self/ns/net".into())? == of(format!("/proc/{}/ns/net", pid?))?)
}

/// All but what changes between the looks.
fn described(root: &Path, ethtool: &Ethtool, link: &LinkInfo, interrupts: &Interrupts) -> LinkEvidence {
    let name = &link.name;
    let features = XdpFeatures::query(link.index).ok();
    let device = device(root, link);
    LinkEvidence {
        name: name.clone(),
        index: link.index,
        state: state(link),
        queues: ethtool.channels(name).ok().flatten().map(|of| (of.rx, of.max_rx)),
        driver: ethtool.driver(name).ok().flatten(),
        node: device.as_deref().and_then(node),
        native: features.map(|of| of.native),
        zero_copy: features.map(|of| of.zero_copy),
        has_iommu: device
            .as_deref()
            .is_some_and(|of| of.ancestors().any(|of| of.join("iommu_group").exists())),
        rx_ring: ethtool.rx_ring(name).ok().flatten(),
        dropped: 0,
        interrupts: interrupts.evidence(root, device.as_deref().map(numbered).unwrap_or_default()),
        offloads: Vec::new(),
    }
}

/// `None` if `/sys` is that of another namespace.
fn folder(root: &Path, link: &LinkInfo) -> Option<PathBuf> {
    let of = root.join("sys/class/net").join(&link.name);
    let index: u32 = fs::read_to_string(of.join("ifindex")).ok()?.trim().parse().ok()?;
    (index == link.index).then_some(of)
}

/// Reports that the card's figures in `/sys` cannot be read.
fn without_card(root: &Path, link: &LinkInfo) -> Option<String> {
    let is_hidden = link.kind.is_none() && link.is_ethernet && folder(root, link).is_none();
    is_hidden.then(|| {
        format!(
            "/sys belongs to another network namespace: node, interrupts and missed packets of {} were not \
             checked; run `ip netns exec NAME pagepool doctor`",
            link.name
        )
    })
}

fn device(root: &Path, link: &LinkInfo) -> Option<PathBuf> {
    fs::canonicalize(folder(root, link)?.join("device")).ok()
}

/// Packets that the card had no room for.
fn missed(root: &Path, link: &LinkInfo) -> u64 {
    let Some(of) = folder(root, link) else { return 0 };
    let count =
        |name: &str| fs::read_to_string(of.join("statistics").join(name)).ok()?.trim().parse::<u64>().ok();
    ["rx_missed_errors", "rx_fifo_errors", "rx_over_errors"].into_iter().filter_map(count).sum()
}

/// A virtio device has the node of the device it is on.
fn node(device: &Path) -> Option<usize> {
    let text = device.ancestors().find_map(|of| fs::read_to_string(of.join("numa_node")).ok())?;
    text.trim().parse().ok() // -1 if the kernel does not know
}

fn numbered(device: &Path) -> Vec<u32> {
    let files = device.ancestors().find_map(|of| fs::read_dir(of.join("msi_irqs")).ok());
    let names = files.into_iter().flatten().filter_map(|file| file.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// Offloads that change arriving packets, as far as they can be read.
fn faults(
    netlink: &mut Netlink,
    ethtool: &Ethtool,
    link: &LinkInfo,
    mode: XdpMode,
    unseen: &mut Unseen,
) -> Vec<OffloadEvidence> {
    let found = OffloadSources::find(netlink, link).faults(netlink, ethtool, mode);
    let failed =
        |error| unseen.not_judged.push(format!("offloads of {}: {}", link.name, error_chain(&error)));
    let found = found.map_err(failed).unwrap_or_default();
    let (hidden, seen): (Vec<_>, Vec<_>) = found.iter().partition(|fault| fault.owner.hidden().is_some());
    unseen.not_judged.extend(hidden.iter().map(|fault| fault.description()));
    let of =
        |fault: &&OffloadFault| OffloadEvidence { effect: fault.description(), command: fault.command() };
    seen.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use pagepool_lab::TempFolder;

    use super::*;

    #[test]
    fn a_card_has_the_node_and_the_interrupts_of_what_it_is_on() {
        let folder = TempFolder::new("pagepool-links").unwrap();
        let card = folder.path().join("sys/devices/pci0000:00/0000:00:03.0");
        let (virtio, net) = (card.join("virtio2"), folder.path().join("sys/class/net/lo"));
        fs::create_dir_all(card.join("msi_irqs")).unwrap();
        fs::create_dir_all(&virtio).unwrap();
        fs::create_dir_all(&net).unwrap();
        fs::write(card.join("numa_node"), "1\n").unwrap();
        fs::write(card.join("msi_irqs/38"), "msix\n").unwrap();
        std::os::unix::fs::symlink(&virtio, net.join("device")).unwrap();
        let lo = Netlink::open().unwrap().link("lo").unwrap();
        fs::write(net.join("ifindex"), format!("{}\n", lo.index + 1)).unwrap();
        assert_eq!(device(folder.path(), &lo), None, "an interface of another namespace");
        fs::write(net.join("ifindex"), format!("{}\n", lo.index)).unwrap();
        let found = device(folder.path(), &lo).unwrap();
        assert_eq!((node(&found), numbered(&found)), (Some(1), vec![38]));
        fs::create_dir_all(net.join("statistics")).unwrap();
        fs::write(net.join("statistics/rx_missed_errors"), "30\n").unwrap();
        fs::write(net.join("statistics/rx_fifo_errors"), "4\n").unwrap();
        assert_eq!(missed(folder.path(), &lo), 34);
        fs::write(card.join("numa_node"), "-1\n").unwrap();
        assert_eq!(node(&found), None);
    }

    #[test]
    fn this_process_is_here() {
        let is_here = [Some(std::process::id()), Some(u32::MAX), None].map(is_here);
        assert_eq!(is_here, [Some(true), None, None]);
    }
}
