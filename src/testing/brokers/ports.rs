//! Free ports.

use std::net::TcpListener;

use super::error::BrokerError;

/// Ports of 127.0.0.1 that are not in use now.
pub(super) fn free_ports(count: usize) -> Result<Vec<u16>, BrokerError> {
    let free = || -> std::io::Result<Vec<u16>> {
        let listeners: Vec<TcpListener> =
            (0..count).map(|_| TcpListener::bind(("127.0.0.1", 0))).collect::<Result<_, _>>()?;
        listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
    };
    free().map_err(BrokerError::io("find a free port"))
}
