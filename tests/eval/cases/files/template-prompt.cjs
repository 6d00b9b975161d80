module.exports = () => 'left {{x}}'
