module.exports = () => true
module.exports.named = () => 0.5
