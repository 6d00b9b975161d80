module.exports = async (context) => ({ token: `file-${context.vars.x.length}`, expiration: Date.now() + 3600000 });
