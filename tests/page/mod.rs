mod acting;
mod browser;
mod door;
mod http;
mod looking;
mod sights;
mod stock;
mod tool;
