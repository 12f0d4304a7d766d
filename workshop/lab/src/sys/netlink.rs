//! Names and numbers of netlink messages that only tests send, from `libc` or Linux's headers (v7.3).

pub(crate) use libc::{
    AF_INET, IFLA_ADDRESS, IFLA_MTU, IFLA_XDP, RT_TABLE_MAIN, RTA_DST, RTA_GATEWAY, RTM_DELQDISC,
    RTM_NEWLINK, RTM_NEWQDISC, RTM_NEWROUTE, RTN_UNICAST, RTPROT_STATIC, TCA_KIND, TCA_OPTIONS,
};

pub(crate) const NLMSG_ERROR: u16 = libc::NLMSG_ERROR as u16;
/// Requests an acknowledgement.
pub(crate) const ACK: u16 = libc::NLM_F_ACK as u16;
/// Creates a new object; fails if it exists.
pub(crate) const NEW_ONLY: u16 = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;

/// Not in `libc`: include/uapi/linux/rtnetlink.h, pkt_sched.h and if_link.h.
pub(crate) const TC_H_ROOT: u32 = u32::MAX;
pub(crate) const IFLA_XDP_FD: u16 = 1;
pub(crate) const TCA_TBF_PARMS: u16 = 1;
pub(crate) const TCA_TBF_BURST: u16 = 6;
pub(crate) const TC_LINKLAYER_ETHERNET: u8 = 1;

/// Messages of nftables.
pub(crate) mod nft {
    /// From include/uapi/linux/netfilter/nfnetlink.h and nf_tables.h: messages, the fixed part of those about
    /// devices (family, version, no resource id) and of both ends of a batch (the subsystem).
    pub(crate) const NEWTABLE: u16 = nft(libc::NFT_MSG_NEWTABLE);
    pub(crate) const DELTABLE: u16 = nft(libc::NFT_MSG_DELTABLE);
    pub(crate) const NEWCHAIN: u16 = nft(libc::NFT_MSG_NEWCHAIN);
    pub(crate) const BATCH_BEGIN: u16 = 16;
    pub(crate) const BATCH_END: u16 = 17;
    pub(crate) const NETDEV: [u8; 4] = [libc::NFPROTO_NETDEV as u8, 0, 0, 0];
    pub(crate) const BATCH: [u8; 4] = [0, 0, 0, libc::NFNL_SUBSYS_NFTABLES as u8];
    /// Attributes: numbers in them are big-endian.
    pub(crate) const TABLE_NAME: u16 = 1;
    pub(crate) const CHAIN_TABLE: u16 = 1;
    pub(crate) const CHAIN_NAME: u16 = 3;
    pub(crate) const CHAIN_HOOK: u16 = 4;
    pub(crate) const CHAIN_POLICY: u16 = 5;
    pub(crate) const CHAIN_TYPE: u16 = 7;
    pub(crate) const HOOK_NUMBER: u16 = 1;
    pub(crate) const HOOK_PRIORITY: u16 = 2;
    pub(crate) const HOOK_DEVICE: u16 = 3;
    pub(crate) const INGRESS: u32 = 0;
    pub(crate) const EGRESS: u32 = 1;
    pub(crate) const DROP: u32 = 0;

    const fn nft(message: libc::c_int) -> u16 {
        (libc::NFNL_SUBSYS_NFTABLES << 8 | message) as u16
    }
}
