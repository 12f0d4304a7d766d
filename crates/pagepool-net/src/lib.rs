//! Packet devices, programs and forwarding over the page pool.
