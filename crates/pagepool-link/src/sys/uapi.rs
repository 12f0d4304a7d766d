//! Names and numbers of netlink messages, spelled as in Linux: from `libc`, in the width that messages use.

pub(crate) use libc::{
    IF_OPER_DOWN, IF_OPER_LOWERLAYERDOWN, IF_OPER_UNKNOWN, IF_OPER_UP, IFA_ADDRESS, IFA_LOCAL, IFLA_ADDRESS,
    IFLA_ALT_IFNAME, IFLA_CARRIER, IFLA_IFNAME, IFLA_INFO_DATA, IFLA_INFO_KIND, IFLA_LINK, IFLA_LINK_NETNSID,
    IFLA_LINKINFO, IFLA_MASTER, IFLA_MTU, IFLA_NET_NS_FD, IFLA_NUM_RX_QUEUES, IFLA_NUM_TX_QUEUES,
    IFLA_OPERSTATE, IFLA_PROMISCUITY, IFLA_STATS64, IFLA_TXQLEN, IFLA_XDP, NETLINK_GENERIC,
    NETLINK_NETFILTER, NETLINK_ROUTE, RTA_DST, RTA_MULTIPATH, RTA_OIF, RTM_DELLINK, RTM_GETADDR, RTM_GETLINK,
    RTM_GETNSID, RTM_GETQDISC, RTM_GETROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNSID, RTM_NEWQDISC,
    RTM_NEWROUTE, RTN_UNICAST, TCA_KIND,
};

pub(crate) const NLMSG_ERROR: u16 = libc::NLMSG_ERROR as u16;
pub(crate) const NLMSG_DONE: u16 = libc::NLMSG_DONE as u16;

pub(crate) const NLM_F_REQUEST: u16 = libc::NLM_F_REQUEST as u16;
pub(crate) const NLM_F_ACK: u16 = libc::NLM_F_ACK as u16;
pub(crate) const NLM_F_DUMP: u16 = libc::NLM_F_DUMP as u16;
/// The table changed while it was read.
pub(crate) const NLM_F_DUMP_INTR: u16 = libc::NLM_F_DUMP_INTR as u16;
/// Creates a new object; fails if it exists.
pub(crate) const NEW_ONLY: u16 = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
/// An error returns only the header of its request.
pub(crate) const NLM_F_CAPPED: u16 = libc::NLM_F_CAPPED as u16;
/// Attributes follow an error.
pub(crate) const NLM_F_ACK_TLVS: u16 = libc::NLM_F_ACK_TLVS as u16;

pub(crate) const NLA_F_NESTED: u16 = libc::NLA_F_NESTED as u16;
pub(crate) const NLA_TYPE_MASK: u16 = libc::NLA_TYPE_MASK as u16;
pub(crate) const NLA_ALIGNTO: usize = libc::NLA_ALIGNTO as usize;

/// Generic netlink: the family that lists the others, and the attributes of a request to it.
pub(crate) const GENL_ID_CTRL: u16 = libc::GENL_ID_CTRL as u16;
pub(crate) const CTRL_CMD_GETFAMILY: u8 = libc::CTRL_CMD_GETFAMILY as u8;
pub(crate) const CTRL_ATTR_FAMILY_ID: u16 = libc::CTRL_ATTR_FAMILY_ID as u16;
pub(crate) const CTRL_ATTR_FAMILY_NAME: u16 = libc::CTRL_ATTR_FAMILY_NAME as u16;
/// Not in `libc`: the family of network devices (include/uapi/linux/netdev.h, v7.3).
pub(crate) const NETDEV_FAMILY_NAME: &str = "netdev";
pub(crate) const NETDEV_CMD_DEV_GET: u8 = 1;
pub(crate) const NETDEV_A_DEV_IFINDEX: u16 = 1;
pub(crate) const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
pub(crate) const NETDEV_A_DEV_XSK_FEATURES: u16 = 6;
pub(crate) const NETDEV_XDP_ACT_BASIC: u64 = 1;
pub(crate) const NETDEV_XDP_ACT_XSK_ZEROCOPY: u64 = 8;
pub(crate) const NETDEV_CMD_PAGE_POOL_GET: u8 = 5;
pub(crate) const NETDEV_CMD_PAGE_POOL_STATS_GET: u8 = 9;
pub(crate) const NETDEV_A_PAGE_POOL_ID: u16 = 1;
pub(crate) const NETDEV_A_PAGE_POOL_IFINDEX: u16 = 2;
pub(crate) const NETDEV_A_PAGE_POOL_NAPI_ID: u16 = 3;
pub(crate) const NETDEV_A_PAGE_POOL_INFLIGHT: u16 = 4;
pub(crate) const NETDEV_A_PAGE_POOL_INFLIGHT_MEM: u16 = 5;
pub(crate) const NETDEV_A_PAGE_POOL_DETACH_TIME: u16 = 6;
pub(crate) const NETDEV_A_PAGE_POOL_DMABUF: u16 = 7;
pub(crate) const NETDEV_A_PAGE_POOL_IO_URING: u16 = 8;
pub(crate) const NETDEV_A_PAGE_POOL_STATS_INFO: u16 = 1;

pub(crate) const AF_UNSPEC: u8 = libc::AF_UNSPEC as u8;
pub(crate) const AF_INET: u8 = libc::AF_INET as u8;
pub(crate) const AF_INET6: u8 = libc::AF_INET6 as u8;
pub(crate) const IFF_UP: u32 = libc::IFF_UP as u32;

/// Not in `libc`: the id of a network namespace, and an open file of it (include/uapi/linux/net_namespace.h,
/// v7.3); the namespace id in a query of a link (if_link.h).
pub(crate) const NETNSA_NSID: u16 = 1;
pub(crate) const NETNSA_FD: u16 = 3;
pub(crate) const IFLA_TARGET_NETNSID: u16 = 46;

/// Not in `libc`: the text of an error (include/uapi/linux/netlink.h, v7.3).
pub(crate) const NLMSGERR_ATTR_MSG: u16 = 1;
/// Not in `libc`: the peer, in the data of a veth (include/uapi/linux/veth.h, v7.3).
pub(crate) const VETH_INFO_PEER: u16 = 1;
/// Not in `libc`: XDP programs in `IFLA_XDP`, by descriptor, and by id in each mode
/// (include/uapi/linux/if_link.h, v7.3).
pub(crate) const IFLA_XDP_FD: u16 = 1;
pub(crate) const IFLA_XDP_FLAGS: u16 = 3;
pub(crate) const IFLA_XDP_DRV_PROG_ID: u16 = 5;
pub(crate) const IFLA_XDP_SKB_PROG_ID: u16 = 6;
pub(crate) const IFLA_XDP_HW_PROG_ID: u16 = 7;
pub(crate) const IFLA_XDP_EXPECTED_FD: u16 = 8;
/// Attach only if none is attached; in generic mode; in the driver; only in place of the expected program.
pub(crate) const XDP_FLAGS_UPDATE_IF_NOEXIST: u32 = 1 << 0;
pub(crate) const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
pub(crate) const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;
pub(crate) const XDP_FLAGS_REPLACE: u32 = 1 << 4;

/// From `libc` in other widths, or not in it (include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h,
/// v7.3): messages of nftables, the fixed part of those about devices (family, version, no resource id), and
/// chains with their hooks. Numbers in attributes are big-endian.
pub(crate) const NFT_GETCHAIN: u16 = nft(libc::NFT_MSG_GETCHAIN);
pub(crate) const NFT_NEWCHAIN: u16 = nft(libc::NFT_MSG_NEWCHAIN);
pub(crate) const NFT_NETDEV: [u8; 4] = [libc::NFPROTO_NETDEV as u8, 0, 0, 0];
pub(crate) const NFTA_CHAIN_HOOK: u16 = 4;
pub(crate) const NFTA_HOOK_HOOKNUM: u16 = 1;
pub(crate) const NFTA_HOOK_DEV: u16 = 3;
pub(crate) const NFTA_HOOK_DEVS: u16 = 4;
pub(crate) const NFTA_DEVICE_NAME: u16 = 1;
pub(crate) const NF_NETDEV_EGRESS: u32 = 1;

const fn nft(message: libc::c_int) -> u16 {
    (libc::NFNL_SUBSYS_NFTABLES << 8 | message) as u16
}

/// Whether packets of this hardware type begin with an Ethernet header.
pub(crate) fn is_ethernet(hardware: u16) -> bool {
    [libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&hardware)
}
