module.exports = (vars, context) => ({ y: Object.keys(context).sort().join(), z: vars.x })
module.exports.other = (vars) => ({ y: 'other', z: typeof vars })
