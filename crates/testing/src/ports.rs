//! Ports of 127.0.0.1 that belong to a test.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use rand::Rng as _;
use tokio::time::sleep;

use super::error::BrokerError;

/// Below the ports that systems give to outgoing connections and to listeners on port 0.
const RANGE: std::ops::Range<u16> = 20_000..32_000;
/// Ports that are bound only as the sign of a [`Turn`].
const TURNS: std::ops::Range<u16> = 19_000..20_000;
const TRIED_EVERY: Duration = Duration::from_millis(2);

/// A TCP port of 127.0.0.1 that no other test takes while this value lives.
///
/// A port that is found free, and is bound only later, may be taken in between. So a claimed port
/// lies where the system gives out none by itself, and the UDP port of the same number is bound as
/// a sign that it is taken. What listens on it, and when, is up to the test: until then connections
/// are refused.
#[derive(Debug)]
pub struct Port {
    number: u16,
    _sign: UdpSocket,
}

impl Port {
    /// A port on which nothing listens.
    ///
    /// # Errors
    /// When none is left.
    pub fn claim() -> Result<Self, BrokerError> {
        let first = rand::rng().random_range(RANGE);
        let claimed = (first..RANGE.end).chain(RANGE.start..first).find_map(|number| {
            let sign = UdpSocket::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
            TcpListener::bind((Ipv4Addr::LOCALHOST, number)).ok()?;
            Some(Self { number, _sign: sign })
        });
        claimed.ok_or_else(|| BrokerError::io("find a free port")(ErrorKind::AddrInUse.into()))
    }

    /// Its number.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.number).into()
    }
}

/// The right to do what only one test of this machine may do at a time, in whichever process. It
/// ends when this value is dropped, or with its process.
#[derive(Debug)]
pub(crate) struct Turn {
    _sign: UdpSocket,
}

impl Turn {
    /// Waits until nobody else has the turn of this number. Numbers that are equal modulo 1,000
    /// share a turn.
    pub(crate) async fn wait(number: u16) -> Result<Self, BrokerError> {
        let port = TURNS.start + number % (TURNS.end - TURNS.start);
        loop {
            match UdpSocket::bind((Ipv4Addr::LOCALHOST, port)) {
                Ok(sign) => return Ok(Self { _sign: sign }),
                Err(error) if error.kind() == ErrorKind::AddrInUse => sleep(TRIED_EVERY).await,
                Err(error) => return Err(BrokerError::io("take turns with other tests")(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::TcpStream;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tokio::task::JoinSet;

    use super::*;

    #[test]
    fn a_claimed_port_is_free_and_no_other_claim_gets_it() {
        let ports: Vec<Port> = (0..200).map(|_| Port::claim().unwrap()).collect();
        let numbers: BTreeSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(numbers.len(), ports.len());
        for port in &ports {
            assert!(TcpStream::connect(port.address()).is_err(), "{} refuses", port.number());
        }
        TcpListener::bind(ports[0].address()).unwrap();
    }

    #[tokio::test]
    async fn only_one_has_the_turn_of_a_number() {
        let (mut had, is_taken) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        for _ in 0..20 {
            let is_taken = is_taken.clone();
            had.spawn(async move {
                let _turn = Turn::wait(7).await.unwrap();
                assert!(!is_taken.swap(true, Ordering::SeqCst), "somebody else has it");
                tokio::task::yield_now().await;
                is_taken.store(false, Ordering::SeqCst);
            });
        }
        assert_eq!(had.join_all().await.len(), 20);
    }
}
