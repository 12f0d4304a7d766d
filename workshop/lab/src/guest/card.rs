//! A network card of a guest.

use super::error::GuestError;

/// The IOMMU between a guest's cards and its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iommu {
    /// None: a card reaches all memory.
    None,
    /// Intel's IOMMU.
    Intel,
    /// The virtio IOMMU.
    Virtio,
}

/// A network card, with its QEMU options. All cards of a wire are connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestCard {
    model: String,
    options: Vec<String>,
    node: Option<u32>,
    wire: u32,
    tap: Option<u32>,
}

/// With the Linux driver of each.
const MODELS: [(&str, &str); 6] = [
    ("virtio", "virtio_net"),
    ("virtio-legacy", "virtio_net"),
    ("e1000e", "e1000e"),
    ("igb", "igb"),
    ("vmxnet3", "vmxnet3"),
    ("rtl8139", "8139cp"),
];

impl GuestCard {
    /// Parses `MODEL[,OPTION...]`. `node=N` puts the card on a bus of that NUMA node, `wire=N` on another
    /// wire than 1, `tap=QUEUES` on a tap of the host (`guest0` for the first card). All other options are
    /// for QEMU.
    ///
    /// # Errors
    ///
    /// [`GuestError::Failed`] for an unknown model, or an invalid number.
    ///
    /// # Examples
    ///
    /// ```
    /// use pagepool_lab::guest::GuestCard;
    ///
    /// assert_eq!(GuestCard::new("igb,node=1")?.driver(), "igb");
    /// assert!(GuestCard::new("ne2000").is_err());
    /// # Ok::<_, pagepool_lab::guest::GuestError>(())
    /// ```
    pub fn new(text: &str) -> Result<Self, GuestError> {
        let mut parts = text.split(',');
        let model = parts.next().unwrap_or_default().to_owned();
        if !MODELS.iter().any(|(name, _)| *name == model) {
            let names: Vec<_> = MODELS.iter().map(|(name, _)| *name).collect();
            return Err(GuestError::Failed(format!("unknown card `{model}`: use {}", names.join(", "))));
        }
        let mut card = Self { model, options: Vec::new(), node: None, wire: 1, tap: None };
        for option in parts {
            match option.split_once('=') {
                Some(("node", number)) => card.node = Some(number_of("node", number)?),
                Some(("wire", number)) => card.wire = number_of("wire", number)?,
                Some(("tap", number)) => card.tap = Some(queues_of(number)?),
                _ => card.options.push(option.to_owned()),
            }
        }
        Ok(card)
    }

    /// The Linux module that drives the card.
    pub fn driver(&self) -> &'static str {
        MODELS.iter().find(|(name, _)| *name == self.model).map_or("", |(_, driver)| driver)
    }

    pub(super) fn wire(&self) -> u32 {
        self.wire
    }

    /// The queues of its tap, if it is on one.
    pub(super) fn tap(&self) -> Option<u32> {
        self.tap
    }

    pub(super) fn arguments(&self, number: usize, iommu: Iommu) -> Vec<String> {
        let mut arguments = self.bus(number);
        let mut device = self.device(number, iommu);
        arguments.push("-netdev".into());
        match self.tap {
            Some(queues) => {
                let tap = tap_name(number);
                arguments.push(format!(
                    "tap,id=net{number},ifname={tap},script=no,downscript=no,vhost=off,queues={queues}"
                ));
                if queues > 1 && self.model == "virtio" {
                    device += &format!(",mq=on,vectors={}", 2 * queues + 2);
                }
            }
            None => arguments.push(format!("hubport,id=net{number},hubid={}", self.wire)),
        }
        arguments.extend(["-device".into(), device]);
        arguments
    }

    /// A port for each card: it is then alone in its IOMMU group, and igb refuses the root bus.
    fn bus(&self, number: usize) -> Vec<String> {
        let slot = format!("chassis={},slot={number}", number + 1);
        let Some(node) = self.node else {
            let port = format!("pcie-root-port,id=port{number},bus=pcie.0,{slot},addr={:#x}", 8 + number);
            return vec!["-device".into(), port];
        };
        let bus = 64 + 16 * number;
        let bridge = format!("pxb-pcie,id=pxb{number},bus=pcie.0,bus_nr={bus},numa_node={node}");
        let port = format!("pcie-root-port,id=port{number},bus=pxb{number},{slot}");
        vec!["-device".into(), bridge, "-device".into(), port]
    }

    fn device(&self, number: usize, iommu: Iommu) -> String {
        let kind = match &*self.model {
            "virtio" if iommu == Iommu::None => "virtio-net-pci,disable-legacy=on,disable-modern=off",
            "virtio" => "virtio-net-pci,disable-legacy=on,disable-modern=off,iommu_platform=on",
            "virtio-legacy" => "virtio-net-pci",
            model => model,
        };
        // `init` numbers interfaces by the last byte.
        let mut device = format!("{kind},netdev=net{number},mac=52:54:00:00:00:{number:02x}");
        for option in &self.options {
            device += &format!(",{option}");
        }
        device + &format!(",bus=port{number}")
    }
}

pub(super) fn tap_name(number: usize) -> String {
    format!("guest{number}")
}

/// QEMU takes any number, but a Linux tap has at most 256 queues.
fn queues_of(text: &str) -> Result<u32, GuestError> {
    match number_of("tap", text)? {
        queues @ 1..=256 => Ok(queues),
        other => Err(GuestError::Failed(format!("a card's tap is {other}, but must be 1 to 256 queues"))),
    }
}

fn number_of(name: &str, text: &str) -> Result<u32, GuestError> {
    text.parse().map_err(|_| GuestError::Failed(format!("a card's {name} is {text}, but must be a number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_on_its_wire_and_its_node() {
        let card = GuestCard::new("virtio,node=1,wire=2,mrg_rxbuf=off").expect("it is one");
        let said = card.arguments(3, Iommu::Intel).join(" ");
        assert!(said.contains("numa_node=1") && said.contains("hubid=2"), "{said}");
        assert!(said.contains("iommu_platform=on") && said.contains("mrg_rxbuf=off,bus=port3"), "{said}");
        let card = GuestCard::new("virtio,tap=4").expect("it is one");
        let said = card.arguments(2, Iommu::None).join(" ");
        assert!(said.contains("ifname=guest2") && said.contains("queues=4"), "{said}");
        assert!(said.contains("vectors=10") && !said.contains("iommu"), "{said}");
    }

    #[test]
    fn a_card_that_is_none_is_refused() {
        for text in ["", "ne2000", "virtio,node=x", "igb,wire=", "virtio,tap=0", "virtio,tap=257"] {
            assert!(GuestCard::new(text).is_err(), "{text}");
        }
    }
}
