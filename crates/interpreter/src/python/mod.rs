//! Python kernels: our own IPython host, forked from a warm process.

mod zygote;

pub use zygote::Zygote;
